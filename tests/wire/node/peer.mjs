// Reads messages with @msgpack/msgpack and writes what it understood.
// stdin:  [{hex, style}]   stdout: [{json, hex}]: the same tree as JSON objects, and packed again.
import { decode, encode } from "@msgpack/msgpack";

const VIEWS = {
  "|i1": ["int8", Int8Array], "<i2": ["int16", Int16Array], "<i4": ["int32", Int32Array],
  "|u1": ["uint8", Uint8Array], "<u2": ["uint16", Uint16Array], "<u4": ["uint32", Uint32Array],
  "<f4": ["float32", Float32Array], "<f8": ["float64", Float64Array],
};

const text = new TextDecoder();
const keys = { str: {}, bin: { mapKeyConverter: (key) => (typeof key === "string" ? key : text.decode(key)) } };

function understood(value) {
  if (Array.isArray(value)) return value.map(understood);
  if (value === null || typeof value !== "object") return value;
  if (value.nd === true) {
    const [dtype, View] = VIEWS[value.type];
    return { dtype, shape: value.shape, data: Array.from(new View(new Uint8Array(value.data).buffer)) };
  }
  return Object.fromEntries(Object.entries(value).map(([key, item]) => [key, understood(item)]));
}

let input = "";
for await (const chunk of process.stdin) input += chunk;
const answers = JSON.parse(input).map(({ hex, style }) => {
  const message = decode(Buffer.from(hex, "hex"), keys[style]);
  return { json: understood(message), hex: Buffer.from(encode(message)).toString("hex") };
});

// And one message of its own making, from typed arrays.
const array = (type, view, shape) => ({
  nd: true, type, kind: "", shape, data: new Uint8Array(view.buffer, view.byteOffset, view.byteLength),
});
const own = {
  args: [array("<f8", Float64Array.of(1, 2.5, -3, 4, 5, 6), [2, 3]), { tuple: [1, 0.5, null, "text"] }],
  kwargs: { weights: array("<f4", Float32Array.of(0.1), []), many: Array.from({ length: 100 }, (_, i) => i * 100) },
  argnums: 0,
};
answers.push({ json: null, hex: Buffer.from(encode(own)).toString("hex") });
process.stdout.write(JSON.stringify(answers));
