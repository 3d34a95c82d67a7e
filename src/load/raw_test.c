/* Raw requests as a broker reads them, and sockets that take and give little at a time. */
#include "base/test.h"
#include "load/raw_int.h"
#include "msg/msg.h"
#include "remoting/codes.h"

#include <arpa/inet.h>
#include <poll.h>
#include <stdio.h>
#include <sys/socket.h>
#include <unistd.h>

static struct run run_of(struct load_options options)
{
    struct run run = {.clock = clock_system(), .id = UINT64_C(0x1234567890abcdef)};
    options.group = "bench-group";
    load_defaults(&options, &run.options);
    return run;
}

static const struct place place = {.queue = {"Some topic", "broker-a", 13}};

/* The request with these numbers, decoded. */
static void request(const struct run *run, uint32_t opaque, uint64_t number, uint64_t due_ns,
                    struct wire_answer *out, struct buf *spare, uint8_t *room)
{
    struct payload payload;
    struct template t;
    struct frame frame;
    size_t need;
    assert_int_equal(payload_make(&payload, run), OK);
    assert_int_equal(template_make(&t, run, &place, &payload), OK);
    size_t n = request_put(room, &t, &payload, run, opaque, number, due_ns);
    assert_int_equal(n, t.len + payload.size);
    assert_int_equal(frame_next(bytes_of(room, n), spare, &frame, &out->head, &need), OK);
    assert_int_equal(frame.size, n);
    out->body = frame.body;
    template_clear(&t);
    payload_clear(&payload);
}

static void must_have(const struct wire_answer *a, const char *name, const char *value)
{
    assert_bytes_equal(head_field(&a->head, bytes_str(name)), bytes_str(value));
}

static void sends_are_what_brokers_read_every_day(void **state)
{
    (void)state;
    static uint8_t room[8192];
    for (int binary = 0; binary < 2; binary++) {
        struct run run = run_of((struct load_options){.size = 100, .binary = binary});
        struct buf spare = buf_upto(1 << 20);
        struct wire_answer a;
        for (uint32_t i = 0; i < 3; i++) {
            uint32_t opaque = OPAQUE_FIRST + i * 499999999u;
            request(&run, opaque, UINT64_C(0xfedcba9876543210) + i, 0, &a, &spare, room);
            assert_int_equal(a.head.code, REQ_SEND_MESSAGE_V2);
            assert_int_equal(a.head.opaque, opaque);
            must_have(&a, "a", "bench-group");
            must_have(&a, "b", "Some topic");
            must_have(&a, "e", "13");
            must_have(&a, "m", "false");
            must_have(&a, "n", "broker-a");
            struct bytes key;
            char wanted[40];
            (void)snprintf(wanted, sizeof wanted, "1234567890ABCDEFFEDCBA987654321%u", i);
            assert_true(props_get(head_field(&a.head, BYTES("i")), PROP_UNIQ_KEY, &key));
            assert_bytes_equal(key, bytes_str(wanted));
            assert_int_equal(a.body.len, 100);
        }
        buf_clear(&spare);
    }
}

static void batches_have_a_key_and_a_stamp_for_each_message(void **state)
{
    (void)state;
    static uint8_t room[8192];
    struct run run = run_of((struct load_options){.kind = LOAD_E2E, .size = 64, .batch = 5});
    struct buf spare = buf_upto(1 << 20);
    struct wire_answer a;
    request(&run, OPAQUE_FIRST, 0x70, 4711, &a, &spare, room);
    assert_int_equal(a.head.code, REQ_SEND_BATCH_MESSAGE);
    must_have(&a, "m", "true");
    struct rd rest = rd_over(a.body);
    for (uint64_t i = 0; i < 5; i++) {
        struct batch_item item;
        struct bytes key;
        bool more = false;
        char wanted[40];
        assert_int_equal(batch_next(&rest, &item, &more), OK);
        assert_true(more);
        assert_int_equal(item.body.len, 64);
        struct stamp stamp = stamp_get(item.body.at);
        assert_true(stamp.run == run.id && stamp.due_ns == 4711 && stamp.number == 0x70 + i);
        assert_true(props_get(item.props, PROP_UNIQ_KEY, &key));
        (void)snprintf(wanted, sizeof wanted, "1234567890ABCDEF000000000000007%u", (unsigned)i);
        assert_bytes_equal(key, bytes_str(wanted));
    }
    assert_int_equal(rd_left(&rest), 0);
    buf_clear(&spare);
}

/* ---- wires ---- */

/* A listener, and a wire that is connected to it. */
static int wire_pair(struct wire *w, size_t in_size, size_t out_size)
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof at;
    struct fault why = {0};
    char address[64];
    int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_true(listener >= 0);
    assert_int_equal(bind(listener, (struct sockaddr *)&at, sizeof at), 0);
    assert_int_equal(listen(listener, 1), 0);
    assert_int_equal(getsockname(listener, (struct sockaddr *)&at, &size), 0);
    (void)snprintf(address, sizeof address, "127.0.0.1:%d", ntohs(at.sin_port));
    assert_int_equal(wire_open(w, address, in_size, out_size, 3000, &why), OK);
    int peer = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
    assert_true(peer >= 0);
    (void)close(listener);
    return peer;
}

static bool next_soon(struct wire *w, struct wire_answer *a)
{
    struct pollfd ready = {.fd = w->fd, .events = POLLIN};
    while (!wire_next(w, a)) {
        if (w->dead)
            return false;
        assert_int_equal(poll(&ready, 1, 20000), 1);
        (void)wire_receive(w);
    }
    return true;
}

/* Answers that come in pieces, several at once, and bigger than the buffer was at first. */
static void frames_are_found_however_they_come(void **state)
{
    (void)state;
    struct wire w;
    struct wire_answer a;
    static uint8_t text[20000];
    int peer = wire_pair(&w, 64, 4096);
    struct wr out = wr_over(text, sizeof text);
    for (int i = 0; i < 3; i++) {
        struct frame_out f;
        frame_begin(&f, &out, HEAD_JSON, &(struct head_start){.opaque = i, .flag = FLAG_RESPONSE});
        frame_end_head(&f, (size_t)i * 5000);
        (void)wr_space(&out, (size_t)i * 5000);
    }
    assert_false(out.full);
    size_t len = wr_len(&out);
    for (size_t i = 0; i < 200; i++) /* the first ones byte by byte */
        assert_int_equal(send(peer, text + i, 1, 0), 1);
    assert_int_equal(send(peer, text + 200, len - 200, 0), (ssize_t)(len - 200));
    for (int i = 0; i < 3; i++) {
        assert_true(next_soon(&w, &a));
        assert_int_equal(a.head.opaque, i);
        assert_int_equal(a.body.len, (size_t)i * 5000);
    }
    (void)close(peer);
    assert_false(next_soon(&w, &a));
    assert_true(w.dead);
    assert_non_null(strstr(w.reason, "closed"));
    wire_close(&w);
}

static void rubbish_ends_a_wire(void **state)
{
    (void)state;
    struct wire w;
    struct wire_answer a;
    int peer = wire_pair(&w, 64, 64);
    assert_int_equal(send(peer, "\xff\xff\xff\xff\xff\xff\xff\xff", 8, 0), 8);
    assert_false(next_soon(&w, &a));
    assert_true(w.dead);
    assert_null(wire_room(&w, 1));
    (void)close(peer);
    wire_close(&w);
}

/* Nobody reads: what the kernel does not take stays, in order, until it does. */
static void what_cannot_be_written_waits(void **state)
{
    (void)state;
    enum { PIECE = 64 << 10 };
    struct wire w;
    static uint8_t got[PIECE];
    int peer = wire_pair(&w, 64, 2 * PIECE);
    size_t put = 0, read = 0;
    while (!wire_waits(&w)) {
        uint8_t *to = wire_room(&w, PIECE);
        assert_non_null(to);
        for (size_t i = 0; i < PIECE; i++)
            to[i] = (uint8_t)((put + i) * 7 + (put + i) / 256);
        wire_put(&w, PIECE);
        put += PIECE;
        wire_flush(&w);
    }
    while (read < put) {
        ssize_t n = recv(peer, got, sizeof got, 0);
        assert_true(n > 0);
        for (size_t i = 0; i < (size_t)n; i++, read++)
            if (got[i] != (uint8_t)(read * 7 + read / 256))
                fail_msg("byte %zu is another", read);
        wire_flush(&w);
    }
    assert_false(wire_waits(&w));
    (void)close(peer);
    wire_close(&w);
}

static void an_address_that_is_none_is_refused(void **state)
{
    (void)state;
    static const char *const bad[] = {"nowhere", "127.0.0.1:x", "127.0.0.1:1", ":"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct wire w;
        struct fault why = {0};
        assert_true(wire_open(&w, bad[i], 64, 64, 1000, &why) != OK);
        assert_true(why.text[0] != 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sends_are_what_brokers_read_every_day),
        cmocka_unit_test(batches_have_a_key_and_a_stamp_for_each_message),
        cmocka_unit_test(frames_are_found_however_they_come),
        cmocka_unit_test(rubbish_ends_a_wire),
        cmocka_unit_test(what_cannot_be_written_waits),
        cmocka_unit_test(an_address_that_is_none_is_refused),
    };
    return cmocka_run_group_tests_name("raw", tests, NULL, NULL);
}
