/* bare.c - a server that does nothing but answer: what the machine could do at all.
 *
 *     bench_bare PORT SIZE [FOLDER]        SIZE: bytes of the bodies that a pull gets
 *
 * The load generator takes it for a name server and a broker. One thread, one epoll; what one read
 * brings is answered by one write. A send gets an answer that was made once, with the same fields
 * as a broker's, in which only the number and the queue are new. A pull gets as many records as it
 * asks for, made once as well, with their offsets put in; they leave from where they lie. Nothing
 * is stored, decoded or checked on these two ways: three numbers are looked for in the header. All
 * other requests are rare, and are decoded as anywhere.
 *
 * With a folder nothing is answered before it is on the disk: what was read is written to a file
 * there as it came, and when no connection has more to read, all of it is synced once and answered.
 * That is a group commit without anything else, over the same sockets.
 *
 * It believes what it is sent: this is a yardstick, not a server.
 */
#include "base/crc32.h"
#include "msg/msg.h"
#include "remoting/codes.h"
#include "remoting/remoting.h"

#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#define IN_SIZE     (512u << 10)
#define OUT_SIZE    (256u << 10) /* answers of one read; requests are longer than theirs */
#define EVENTS      256
#define RECORDS     32
#define QUEUES      8
#define DIGITS      10 /* of an answer's number: the load's have as many */
#define OPAQUE_LONG 1000000000
#define PULL_END    (INT64_C(1) << 40)

struct conn {
    int fd;
    bool waits;         /* epoll tells when it can be written to */
    bool held;          /* its answers, until what they are for is on the disk */
    struct conn *after; /* the next that is held */
    size_t in_len, in_size, out_at, out_len, out_size;
    uint8_t *in, *out;
};

struct server {
    int epoll_fd, listen_fd;
    uint16_t port;
    uint8_t sent[512], pulled[512]; /* the two answers, without the records */
    size_t sent_len, pulled_len;
    size_t sent_opaque, sent_queue, pulled_opaque;
    uint8_t *records;
    size_t record_size;
    int log_fd; /* or -1 */
    struct conn *held;
};

static void must(bool fine, const char *what)
{
    if (fine)
        return;
    perror(what);
    exit(2);
}

/* ---- answers that are made once ---- */

static size_t find(const uint8_t *in, size_t len, const char *text)
{
    const uint8_t *at = memmem(in, len, text, strlen(text));
    must(at, text);
    return (size_t)(at - in) + strlen(text);
}

static void answers_make(struct server *s)
{
    const struct head_start head = {.opaque = OPAQUE_LONG, .flag = FLAG_RESPONSE};
    struct frame_out f;
    struct wr w = wr_over(s->sent, sizeof s->sent);
    frame_begin(&f, &w, HEAD_JSON, &head);
    frame_put(&f, BYTES("msgId"), BYTES("7F00000100002A9F0000000000000000"));
    frame_put_int(&f, BYTES("queueId"), 0);
    frame_put_int(&f, BYTES("queueOffset"), 1000000);
    frame_put(&f, BYTES("transactionId"), BYTES("00000000000000000000000000000000"));
    frame_put(&f, BYTES("MSG_REGION"), BYTES("DefaultRegion"));
    frame_put_bool(&f, BYTES("TRACE_ON"), true);
    frame_end_head(&f, 0);
    s->sent_len = wr_len(&w);
    s->sent_opaque = find(s->sent, s->sent_len, "\"opaque\":");
    s->sent_queue = find(s->sent, s->sent_len, "\"queueId\":\"");

    w = wr_over(s->pulled, sizeof s->pulled);
    frame_begin(&f, &w, HEAD_JSON, &head);
    frame_put_int(&f, BYTES("suggestWhichBrokerId"), 0);
    frame_put_int(&f, BYTES("nextBeginOffset"), 1000000);
    frame_put_int(&f, BYTES("minOffset"), 0);
    frame_put_int(&f, BYTES("maxOffset"), PULL_END);
    frame_end_head(&f, RECORDS * s->record_size);
    s->pulled_len = wr_len(&w);
    s->pulled_opaque = find(s->pulled, s->pulled_len, "\"opaque\":");
}

static void records_make(struct server *s, size_t body_size)
{
    uint8_t *body = calloc(1, body_size);
    must(body, "memory");
    for (size_t i = 0; i < body_size; i++)
        body[i] = (uint8_t)(i * 7 + 1);
    const struct addr host = {.ip = {127, 0, 0, 1}, .ip_len = 4, .port = 10911};
    struct record r = {
        .born_host = host,
        .store_host = host,
        .body = bytes_of(body, body_size),
        .topic = BYTES("bench-peers-bare"),
        .props = BYTES("UNIQ_KEY\1"
                       "00000000000000000000000000000000\2WAIT\1true\2TAGS\1bench\2"),
    };
    r.body_crc = crc32_positive(r.body);
    s->record_size = record_size(&r);
    s->records = malloc(RECORDS * s->record_size);
    must(s->records, "memory");
    struct wr w = wr_over(s->records, RECORDS * s->record_size);
    for (int i = 0; i < RECORDS; i++)
        must(record_encode(&r, &w) == OK, "record");
    free(body);
}

/* ---- output ---- */

static void out_add(struct conn *c, const uint8_t *bytes, size_t len)
{
    if (c->out_size - c->out_len < len) {
        c->out_size = c->out_len + len + OUT_SIZE;
        c->out = realloc(c->out, c->out_size);
        must(c->out, "memory");
    }
    memcpy(c->out + c->out_len, bytes, len);
    c->out_len += len;
}

/* False: the connection is gone. */
static bool out_flush(struct server *s, struct conn *c)
{
    while (c->out_at < c->out_len) {
        ssize_t n = send(c->fd, c->out + c->out_at, c->out_len - c->out_at, MSG_NOSIGNAL);
        if (n < 0 && errno != EAGAIN)
            return false;
        if (n < 0)
            break;
        c->out_at += (size_t)n;
    }
    bool waits = c->out_at < c->out_len;
    if (!waits)
        c->out_at = c->out_len = 0;
    if (waits != c->waits) {
        struct epoll_event want = {.events = EPOLLIN | (waits ? EPOLLOUT : 0u), .data.ptr = c};
        must(epoll_ctl(s->epoll_fd, EPOLL_CTL_MOD, c->fd, &want) == 0, "epoll_ctl");
        c->waits = waits;
    }
    return true;
}

/* ---- the two quick ways ---- */

/* The number behind that text in the header, or -1. */
static int64_t number_at(struct bytes head, const char *text, size_t len)
{
    const uint8_t *at = memmem(head.at, head.len, text, len), *end = head.at + head.len;
    int64_t value = 0;
    if (!at)
        return -1;
    for (at += len; at < end && *at >= '0' && *at <= '9'; at++)
        value = value * 10 + (*at - '0');
    return value;
}
#define NUMBER_AT(head, text) number_at(head, text, sizeof(text) - 1)

/* Ten places; blanks stand before a shorter number, which JSON does not mind. */
static void digits_put(uint8_t *to, int64_t number)
{
    bool first = true;
    for (size_t i = DIGITS; i-- > 0; number /= 10, first = false)
        to[i] = (uint8_t)(number > 0 || first ? '0' + number % 10 : ' ');
}

static bool answer_send(struct server *s, struct conn *c, struct bytes head, int64_t opaque)
{
    int64_t queue = NUMBER_AT(head, "\"e\":\"");
    if (queue < 0 || queue >= QUEUES)
        return false;
    out_add(c, s->sent, s->sent_len);
    uint8_t *answer = c->out + c->out_len - s->sent_len;
    digits_put(answer + s->sent_opaque, opaque);
    answer[s->sent_queue] = (uint8_t)('0' + queue);
    return true;
}

/* The records leave from where they lie; what the socket does not take is kept. */
static bool answer_pull(struct server *s, struct conn *c, struct bytes head, int64_t opaque)
{
    int64_t offset = NUMBER_AT(head, "\"queueOffset\":\"");
    if (offset < 0 || NUMBER_AT(head, "\"maxMsgNums\":\"") != RECORDS)
        return false;
    digits_put(s->pulled + s->pulled_opaque, opaque);
    for (int i = 0; i < RECORDS; i++)
        record_place(s->records + (size_t)i * s->record_size, offset + i, 0, 0);
    size_t whole = RECORDS * s->record_size, done = 0;
    if (c->out_len == 0) {
        struct iovec parts[2] = {{s->pulled, s->pulled_len}, {s->records, whole}};
        ssize_t n = writev(c->fd, parts, 2);
        if (n < 0 && errno != EAGAIN)
            return true; /* the next read tells */
        done = n > 0 ? (size_t)n : 0;
    }
    if (done < s->pulled_len)
        out_add(c, s->pulled + done, s->pulled_len - done);
    done = done > s->pulled_len ? done - s->pulled_len : 0;
    if (done < whole)
        out_add(c, s->records + done, whole - done);
    return true;
}

static bool answer_quickly(struct server *s, struct conn *c, struct bytes head)
{
    int64_t code = NUMBER_AT(head, "\"code\":"), opaque = NUMBER_AT(head, "\"opaque\":");
    if (opaque < 0)
        return false;
    if (code == REQ_PULL_MESSAGE)
        return answer_pull(s, c, head, opaque);
    return (code == REQ_SEND_MESSAGE_V2 || code == REQ_SEND_BATCH_MESSAGE) &&
           answer_send(s, c, head, opaque);
}

/* ---- a group commit ---- */

static void log_open(struct server *s, const char *folder)
{
    s->log_fd = open(folder, O_WRONLY | O_TMPFILE | O_CLOEXEC, 0600);
    must(s->log_fd >= 0, folder);
}

/* What came, and whose answers wait for it. */
static void log_add(struct server *s, struct conn *c, size_t len)
{
    for (size_t at = 0; at < len;) {
        ssize_t n = write(s->log_fd, c->in + at, len - at);
        must(n > 0, "writing");
        at += (size_t)n;
    }
    if (c->held)
        return;
    c->held = true;
    c->after = s->held;
    s->held = c;
}

static void log_sync(struct server *s)
{
    if (!s->held)
        return;
    must(fdatasync(s->log_fd) == 0, "fdatasync");
    while (s->held) {
        struct conn *c = s->held;
        s->held = c->after;
        c->held = false;
        (void)out_flush(s, c); /* if it is gone, the next read tells */
    }
}

/* ---- everything else ---- */

static void answer_slowly(struct server *s, struct conn *c, const struct frame *frame)
{
    uint8_t space[4096], text[1024], out[2048];
    struct wr spare = wr_over(space, sizeof space), w = wr_over(out, sizeof out);
    struct head head;
    struct frame_out f;
    size_t body = 0;
    must(head_decode(frame, &spare, &head) == OK, "a header");
    if (head.flag & FLAG_ONEWAY)
        return;
    if (head.code == REQ_GET_ROUTEINFO_BY_TOPIC)
        body = (size_t)snprintf(
            (char *)text, sizeof text,
            "{\"brokerDatas\":[{\"brokerAddrs\":{\"0\":\"127.0.0.1:%u\"},\"brokerName\":\"bare\","
            "\"cluster\":\"DefaultCluster\"}],\"filterServerTable\":{},\"queueDatas\":[{"
            "\"brokerName\":\"bare\",\"perm\":6,\"readQueueNums\":%d,\"topicSysFlag\":0,"
            "\"writeQueueNums\":%d}]}",
            s->port, QUEUES, QUEUES);
    frame_begin(&f, &w, frame->form,
                &(struct head_start){.opaque = head.opaque, .flag = FLAG_RESPONSE});
    if (head.code == REQ_GET_MAX_OFFSET)
        frame_put_int(&f, BYTES("offset"), PULL_END);
    if (head.code == REQ_GET_MIN_OFFSET)
        frame_put_int(&f, BYTES("offset"), 0);
    struct bytes queue = head_field(&head, BYTES("e"));
    if (queue.len > 0) {
        frame_put(&f, BYTES("msgId"), BYTES("7F00000100002A9F0000000000000000"));
        frame_put(&f, BYTES("queueId"), queue);
        frame_put_int(&f, BYTES("queueOffset"), 0);
    }
    frame_end_head(&f, body);
    must(!w.full, "an answer");
    out_add(c, out, wr_len(&w));
    out_add(c, text, body);
}

/* ---- connections ---- */

static void conn_close(struct server *s, struct conn *c)
{
    struct conn **at = &s->held;
    while (*at && *at != c)
        at = &(*at)->after;
    if (*at)
        *at = c->after;
    (void)close(c->fd);
    free(c->in);
    free(c->out);
    free(c);
}

static void conn_grow(struct conn *c, size_t need)
{
    if (need <= c->in_size)
        return;
    c->in_size = need + IN_SIZE;
    c->in = realloc(c->in, c->in_size);
    must(c->in, "memory");
}

static bool conn_turn(struct server *s, struct conn *c)
{
    ssize_t n = recv(c->fd, c->in + c->in_len, c->in_size - c->in_len, 0);
    if (n == 0 || (n < 0 && errno != EAGAIN))
        return false;
    c->in_len += n > 0 ? (size_t)n : 0;
    size_t used = 0, need;
    for (;;) {
        struct frame frame;
        enum err err = frame_split(bytes_of(c->in + used, c->in_len - used), &frame, &need);
        if (err == ERR_INCOMPLETE)
            break;
        must(err == OK, "a frame");
        if (frame.form != HEAD_JSON || !answer_quickly(s, c, frame.head))
            answer_slowly(s, c, &frame);
        used += frame.size;
    }
    if (s->log_fd >= 0 && used > 0)
        log_add(s, c, used);
    c->in_len -= used;
    if (c->in_len > 0 && used > 0)
        memmove(c->in, c->in + used, c->in_len);
    conn_grow(c, need);
    return c->held || out_flush(s, c);
}

static void conn_accept(struct server *s)
{
    struct conn *c = calloc(1, sizeof *c);
    int on = 1;
    must(c, "memory");
    c->fd = accept4(s->listen_fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
    must(c->fd >= 0, "accept");
    (void)setsockopt(c->fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    c->in_size = IN_SIZE;
    c->in = malloc(IN_SIZE);
    must(c->in, "memory");
    struct epoll_event want = {.events = EPOLLIN, .data.ptr = c};
    must(epoll_ctl(s->epoll_fd, EPOLL_CTL_ADD, c->fd, &want) == 0, "epoll_ctl");
}

static void listen_on(struct server *s, uint16_t port)
{
    struct sockaddr_in name = {
        .sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int on = 1;
    s->port = port;
    s->listen_fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    must(s->listen_fd >= 0, "socket");
    (void)setsockopt(s->listen_fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    must(bind(s->listen_fd, (struct sockaddr *)&name, sizeof name) == 0, "bind");
    must(listen(s->listen_fd, 1024) == 0, "listen");
    s->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    struct epoll_event want = {.events = EPOLLIN, .data.ptr = s};
    must(epoll_ctl(s->epoll_fd, EPOLL_CTL_ADD, s->listen_fd, &want) == 0, "epoll_ctl");
}

int main(int argc, char **argv)
{
    static struct server s;
    int64_t port, size;
    if (argc < 3 || argc > 4 || !bytes_to_i64(bytes_str(argv[1]), &port) ||
        !bytes_to_i64(bytes_str(argv[2]), &size) || port < 1 || port > UINT16_MAX || size < 1 ||
        size > (4 << 20)) {
        fprintf(stderr, "usage: bench_bare PORT SIZE [FOLDER]\n");
        return 2;
    }
    records_make(&s, (size_t)size);
    answers_make(&s);
    listen_on(&s, (uint16_t)port);
    s.log_fd = -1;
    if (argc == 4)
        log_open(&s, argv[3]);
    printf("ready\n");
    (void)fflush(stdout);
    for (;;) {
        struct epoll_event events[EVENTS];
        int n = epoll_wait(s.epoll_fd, events, EVENTS, s.held ? 0 : -1);
        if (n == 0)
            log_sync(&s);
        for (int i = 0; i < n; i++) {
            if (events[i].data.ptr == &s)
                conn_accept(&s);
            else if (!conn_turn(&s, events[i].data.ptr))
                conn_close(&s, events[i].data.ptr);
        }
    }
}
