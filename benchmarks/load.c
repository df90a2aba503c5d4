/* Load on an HTTP/1.1 server: so many kept connections, each sends the same request again as soon as
   its answer has come (or after a pause).

   load PORT CONNECTIONS SECONDS PAUSE_MS REQUEST_FILE

   One thread around poll(2). With a pause, a slow answer also counts for the requests that would have
   been sent while it was waited for, so that one long stall weighs as much as it lasts. Prints one line of JSON: answers with status 200, others, the seconds it
   took, and latencies in ms (median, 99th percentile, longest). Answers must carry a Content-Length. */

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { HEAD = 16384, MOST = 1024 };

struct connection {
    int fd;
    size_t sent;      /* bytes of the request */
    char head[HEAD];  /* of the answer, as far as it has come */
    size_t headed;
    long long left;   /* bytes of the answer's body to come; -1: its head is not whole */
    double began;     /* when the request went out; 0: it waits until `next` */
    double next;
};

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec + 1e-9 * t.tv_nsec;
}

static void fail(const char *what) {
    perror(what);
    exit(1);
}

static int compare(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double *latency;
static size_t taken, room;

/* One answer's latency in ms, and those of the requests that it held up. */
static void take(double ms, double pause_ms) {
    do {
        if (taken == room) {
            room = room ? 2 * room : 1 << 16;
            latency = realloc(latency, room * sizeof *latency);
            if (!latency) fail("realloc");
        }
        latency[taken++] = ms;
        ms -= pause_ms;
    } while (pause_ms > 0 && ms > pause_ms);
}

static int open_connection(int port) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(port)};
    int fd = socket(AF_INET, SOCK_STREAM, 0), on = 1;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    if (fd < 0 || connect(fd, (struct sockaddr *)&address, sizeof address) < 0) fail("connect");
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    fcntl(fd, F_SETFL, O_NONBLOCK);
    return fd;
}

/* The Content-Length of a whole head. */
static long long length_of(const char *head) {
    for (const char *line = strstr(head, "\r\n"); line; line = strstr(line + 2, "\r\n"))
        if (!strncasecmp(line + 2, "content-length:", 15)) return atoll(line + 17);
    fprintf(stderr, "an answer without Content-Length\n");
    exit(1);
}

int main(int argc, char **argv) {
    if (argc != 6) {
        fprintf(stderr, "load PORT CONNECTIONS SECONDS PAUSE_MS REQUEST_FILE\n");
        return 2;
    }
    int port = atoi(argv[1]), count = atoi(argv[2]);
    double seconds = atof(argv[3]), pause = atof(argv[4]) / 1e3;
    if (count < 1 || count > MOST) return 2;

    FILE *file = fopen(argv[5], "rb");
    if (!file) fail(argv[5]);
    fseek(file, 0, SEEK_END);
    size_t size = ftell(file);
    rewind(file);
    char *request = malloc(size), *sink = malloc(1 << 20);
    if (fread(request, 1, size, file) != size) fail("read");
    fclose(file);

    static struct connection all[MOST];
    static struct pollfd polled[MOST];
    size_t answers = 0, others = 0;
    double start = now(), end = start + seconds, time;
    for (int i = 0; i < count; i++) {
        all[i].fd = open_connection(port);
        all[i].left = -1;
        all[i].next = start;
    }
    while ((time = now()) < end) {
        double soonest = end;
        for (int i = 0; i < count; i++) {
            struct connection *c = &all[i];
            if (!c->began && c->next <= time) c->began = time;
            if (!c->began && c->next < soonest) soonest = c->next;
            polled[i].fd = c->fd;
            polled[i].events = !c->began ? 0 : c->sent < size ? POLLOUT : POLLIN;
        }
        int wait = (int)((soonest - time) * 1e3) + 1;
        if (poll(polled, count, wait) < 0 && errno != EINTR) fail("poll");
        for (int i = 0; i < count; i++) {
            struct connection *c = &all[i];
            if (polled[i].revents & POLLOUT) {
                ssize_t n = send(c->fd, request + c->sent, size - c->sent, MSG_NOSIGNAL);
                if (n < 0 && errno != EAGAIN) fail("send");
                if (n > 0) c->sent += n;
                continue;
            }
            if (!(polled[i].revents & (POLLIN | POLLHUP | POLLERR))) continue;
            if (c->left < 0) {
                ssize_t n = recv(c->fd, c->head + c->headed, HEAD - 1 - c->headed, 0);
                if (n < 0 && errno == EAGAIN) continue;
                if (n <= 0) fail("recv");
                c->headed += n;
                c->head[c->headed] = 0;
                char *ends = strstr(c->head, "\r\n\r\n");
                if (!ends) continue;
                c->left = length_of(c->head) - (long long)(c->head + c->headed - (ends + 4));
            } else {
                ssize_t n = recv(c->fd, sink, 1 << 20, 0);
                if (n < 0 && errno == EAGAIN) continue;
                if (n <= 0) fail("recv");
                c->left -= n;
            }
            if (c->left == 0) {
                if (!strncmp(c->head + 9, "200", 3)) answers++;
                else others++;
                time = now();
                take(1e3 * (time - c->began), 1e3 * pause);
                c->sent = c->headed = 0;
                c->left = -1;
                c->began = 0;
                c->next = time + pause;
            }
        }
    }
    /* A request that is still waiting has waited at least so long. */
    for (int i = 0; i < count; i++)
        if (all[i].began && (!taken || end - all[i].began > 0.1)) take(1e3 * (end - all[i].began), 1e3 * pause);
    if (!taken) return 1;
    qsort(latency, taken, sizeof *latency, compare);
    printf("{\"answers\": %zu, \"others\": %zu, \"seconds\": %.3f, \"median_ms\": %.4f, \"p99_ms\": %.4f, "
           "\"longest_ms\": %.4f}\n",
           answers, others, now() - start, latency[taken / 2], latency[(size_t)(0.99 * (taken - 1))],
           latency[taken - 1]);
    return 0;
}
