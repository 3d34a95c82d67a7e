/* TLS of those who call us: the same server of frames as elsewhere, and clients that are OpenSSL on
 * a plain blocking socket, so that every byte on the wire is another's. */
#include "io/cert_test.h"

static struct house house;
static struct identity authority, server, member, stranger;

static int init_all(void **state)
{
    (void)state;
    certs_open();
    cert_make(&authority, "authority", NULL, NULL, -DAY, DAY);
    cert_make(&server, "server", "DNS:localhost,IP:127.0.0.1", &authority, -DAY, DAY);
    cert_make(&member, "member", "DNS:member", &authority, -DAY, DAY);
    cert_make(&stranger, "stranger", "DNS:stranger", NULL, -DAY, DAY);
    return 0;
}

static int finish_all(void **state)
{
    (void)state;
    cert_free(&authority);
    cert_free(&server);
    cert_free(&member);
    cert_free(&stranger);
    certs_close();
    return 0;
}

static int init(void **state)
{
    (void)state;
    house_init(&house, 2);
    return 0;
}

static int finish(void **state)
{
    (void)state;
    house_close(&house);
    return 0;
}

static void start(enum tls_ask ask, bool enforcing)
{
    house_open(&house);
    struct tls *tls = server_tls(&server, &authority, ask);
    listener_secure(house.listener, tls, enforcing);
    tls_close(tls); /* the listener has its own */
    house_run(&house);
}

/* ---- a client ---- */

struct caller {
    SSL_CTX *context;
    SSL *ssl;
    int fd;
};

/* Before its handshake. */
static struct caller caller_open(int version, const struct identity *who)
{
    struct caller c = {.context = SSL_CTX_new(TLS_client_method()), .fd = client_open(&house)};
    assert_non_null(c.context);
    (void)SSL_CTX_set_max_proto_version(c.context, version);
    assert_int_equal(SSL_CTX_load_verify_file(c.context, authority.cert_path), 1);
    SSL_CTX_set_verify(c.context, SSL_VERIFY_PEER, NULL);
    if (who) {
        assert_int_equal(SSL_CTX_use_certificate(c.context, who->cert), 1);
        assert_int_equal(SSL_CTX_use_PrivateKey(c.context, who->key), 1);
    }
    c.ssl = SSL_new(c.context);
    assert_non_null(c.ssl);
    assert_int_equal(SSL_set1_host(c.ssl, "localhost"), 1);
    assert_int_equal(SSL_set_fd(c.ssl, c.fd), 1);
    return c;
}

static void caller_close(struct caller *c)
{
    SSL_free(c->ssl);
    SSL_CTX_free(c->context);
    (void)close(c->fd);
}

static struct caller caller_connect(int version)
{
    struct caller c = caller_open(version, NULL);
    assert_int_equal(SSL_connect(c.ssl), 1);
    assert_int_equal(SSL_version(c.ssl), version);
    return c;
}

static void caller_send(struct caller *c, const void *at, size_t len)
{
    size_t sent;
    assert_int_equal(SSL_write_ex(c->ssl, at, len, &sent), 1);
    assert_int_equal(sent, len);
}

static void caller_receive(struct caller *c, uint8_t *into, size_t len)
{
    for (size_t n; len > 0; into += n, len -= n)
        assert_int_equal(SSL_read_ex(c->ssl, into, len, &n), 1);
}

static void caller_echo(struct caller *c, size_t size)
{
    cleanup(free_at) uint8_t *frame = malloc(size), *back = malloc(size);
    assert_true(frame && back);
    (void)frame_put(frame, VERB_ECHO, size, (uint32_t)size);
    caller_send(c, frame, size);
    caller_receive(c, back, size);
    assert_memory_equal(back, frame, size);
}

static void plain_echo(int fd)
{
    uint8_t frame[50], back[50];
    (void)frame_put(frame, VERB_ECHO, sizeof frame, 3);
    client_send(fd, bytes_of(frame, sizeof frame));
    client_receive(fd, back, sizeof back);
    assert_memory_equal(back, frame, sizeof back);
}

/* ---- tests ---- */

static void frames_of_every_size_come_back_in_both_versions(void **state)
{
    (void)state;
    start(TLS_ASK_NOT, true);
    const int versions[] = {TLS1_2_VERSION, TLS1_3_VERSION};
    for (size_t v = 0; v < 2; v++) {
        struct caller c = caller_connect(versions[v]);
        const size_t sizes[] = {5, 6, 1000, 16383, 16384, 16385, 70000, 300000, 5000000};
        for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++)
            caller_echo(&c, sizes[i]);
        caller_close(&c);
    }
    tally_await(&house.closed, 2);
}

/* Frames that begin and end anywhere in a record, hundreds in one read. */
static void many_frames_in_one_go(void **state)
{
    (void)state;
    start(TLS_ASK_NOT, false);
    struct caller c = caller_connect(TLS1_3_VERSION);
    enum { N = 2000, SIZE = 333 };
    cleanup(free_at) uint8_t *all = malloc(N * SIZE), *back = malloc(N * SIZE);
    assert_true(all && back);
    for (uint32_t i = 0; i < N; i++)
        (void)frame_put(all + (size_t)i * SIZE, VERB_ECHO, SIZE, i);
    caller_send(&c, all, (size_t)N * SIZE);
    caller_receive(&c, back, (size_t)N * SIZE);
    assert_memory_equal(all, back, (size_t)N * SIZE);
    caller_close(&c);
}

/* Twenty times as much on the wire as there is in it, and more in one go than is read at once. */
static void records_of_one_byte_are_taken_in_their_turn(void **state)
{
    (void)state;
    house.n = 1;
    start(TLS_ASK_NOT, false);
    struct caller c = caller_connect(TLS1_3_VERSION), other = caller_connect(TLS1_3_VERSION);
    enum { SIZE = 20000 };
    static uint8_t frame[SIZE], back[SIZE];
    (void)frame_put(frame, VERB_ECHO, SIZE, 5);
    for (size_t i = 0; i < SIZE; i++)
        caller_send(&c, frame + i, 1);
    caller_echo(&other, 100);
    caller_receive(&c, back, SIZE);
    assert_memory_equal(back, frame, SIZE);
    caller_close(&c);
    caller_close(&other);
}

/* The first byte decides. */
static void one_port_serves_plain_and_secret_peers(void **state)
{
    (void)state;
    start(TLS_ASK_NOT, false);
    cleanup(close_at) int plain = client_open(&house);
    plain_echo(plain);
    struct caller c = caller_connect(TLS1_3_VERSION);
    caller_echo(&c, 100);
    plain_echo(plain);
    caller_close(&c);
}

static void write_first(void *user)
{
    (void)user;
    conn_write(house.last, BYTES("hello"));
}

/* Ours waits until it is known in which form it is to leave. */
static void what_is_written_before_the_first_byte_leaves_after_it(void **state)
{
    (void)state;
    house.n = 1;
    start(TLS_ASK_NOT, false);
    uint8_t back[5];
    cleanup(close_at) int plain = client_open(&house);
    tally_await(&house.opened, 1);
    on_loop(house.loops[0], write_first, NULL);
    client_send(plain, BYTES("\0\0"));
    client_receive(plain, back, sizeof back);
    assert_memory_equal(back, "hello", 5);

    struct caller c = caller_open(TLS1_3_VERSION, NULL);
    tally_await(&house.opened, 2);
    on_loop(house.loops[0], write_first, NULL);
    assert_int_equal(SSL_connect(c.ssl), 1);
    caller_receive(&c, back, sizeof back);
    assert_memory_equal(back, "hello", 5);
    caller_close(&c);
}

static void whoever_speaks_plainly_is_refused_where_tls_is_enforced(void **state)
{
    (void)state;
    start(TLS_ASK_NOT, true);
    cleanup(close_at) int plain = client_open(&house);
    uint8_t frame[50];
    (void)frame_put(frame, VERB_ECHO, sizeof frame, 3);
    client_send(plain, bytes_of(frame, sizeof frame));
    assert_true(client_at_end(plain));
    tally_await(&house.closed, 1);
    assert_int_equal(tally_now(&house.frames), 0);
}

/* 20 MB of slices to a peer that does not read: the queue holds them as they are, hardly any of it
 * enciphered, and each is let go once. */
static void a_slow_reader_gets_everything_and_slices_are_let_go_once(void **state)
{
    (void)state;
    start(TLS_ASK_NOT, false);
    struct caller c = caller_connect(TLS1_3_VERSION);
    enum { N = 20, SIZE = 1000000 };
    for (int i = 0; i < N; i++) {
        uint8_t ask[FRAME_HEAD + 4];
        (void)frame_put_much(ask, SIZE);
        caller_send(&c, ask, sizeof ask);
    }
    tally_await(&house.congested, 1);
    cleanup(free_at) uint8_t *got = malloc(SIZE);
    assert_non_null(got);
    for (int i = 0; i < N; i++) {
        caller_receive(&c, got, SIZE);
        for (size_t at = 0; at < SIZE; at += 977)
            assert_int_equal(got[at], (uint8_t)(at * 7));
    }
    tally_await(&house.released, N);
    caller_echo(&c, 100);
    caller_close(&c);
}

static void a_peer_that_goes_away_takes_its_slices_with_it(void **state)
{
    (void)state;
    start(TLS_ASK_NOT, false);
    struct caller c = caller_connect(TLS1_3_VERSION);
    uint8_t ask[FRAME_HEAD + 4];
    (void)frame_put_much(ask, 30000000);
    caller_send(&c, ask, sizeof ask);
    tally_await(&house.frames, 1);
    caller_close(&c);
    tally_await(&house.released, 1);
    tally_await(&house.closed, 1);
}

/* A peer learns that nothing is missing. */
static void the_end_is_said_behind_the_last_byte(void **state)
{
    (void)state;
    start(TLS_ASK_NOT, false);
    struct caller c = caller_connect(TLS1_3_VERSION);
    uint8_t frame[5000], back[5000];
    (void)frame_put(frame, VERB_FINISH, sizeof frame, 9);
    caller_send(&c, frame, sizeof frame);
    caller_receive(&c, back, sizeof back);
    assert_memory_equal(back, frame, sizeof back);
    size_t n;
    assert_int_equal(SSL_read_ex(c.ssl, back, 1, &n), 0);
    assert_int_equal(SSL_get_error(c.ssl, 0), SSL_ERROR_ZERO_RETURN);
    caller_close(&c);
}

/* It says its end and waits for ours. */
static void a_peer_may_say_its_end_first(void **state)
{
    (void)state;
    start(TLS_ASK_NOT, false);
    struct caller c = caller_connect(TLS1_2_VERSION);
    caller_echo(&c, 100);
    assert_int_equal(SSL_shutdown(c.ssl), 0);
    tally_await(&house.closed, 1);
    assert_string_equal(house.last_reason, "closed by the peer");
    caller_close(&c);
}

/* ---- who they are ---- */

static void expect_refusal(const struct identity *who, int version, const char *reason)
{
    unsigned before = tally_now(&house.opened);
    tally_await(&house.closed, before); /* those from before are gone */
    struct caller c = caller_open(version, who);
    uint8_t byte;
    size_t n;
    /* In TLS 1.3 a client is done before the server has looked at its certificate. */
    if (SSL_connect(c.ssl) == 1)
        assert_int_equal(SSL_read_ex(c.ssl, &byte, 1, &n), 0);
    assert_int_not_equal(ERR_peek_error(), 0); /* an alert, not just an end */
    ERR_clear_error();
    caller_close(&c);
    tally_await(&house.closed, before + 1);
    if (!strstr(house.last_reason, reason))
        fail_msg("%s", house.last_reason);
}

static void clients_show_a_certificate_where_it_is_demanded(void **state)
{
    (void)state;
    start(TLS_DEMAND, false);
    const int versions[] = {TLS1_2_VERSION, TLS1_3_VERSION};
    for (size_t v = 0; v < 2; v++) {
        expect_refusal(NULL, versions[v], "shows no certificate");
        expect_refusal(&stranger, versions[v], "not signed by");
        struct caller c = caller_open(versions[v], &member);
        assert_int_equal(SSL_connect(c.ssl), 1);
        caller_echo(&c, 100);
        caller_close(&c);
    }
    assert_int_equal(tally_now(&house.frames), 2);
}

static void asking_is_not_demanding(void **state)
{
    (void)state;
    start(TLS_ASK, false);
    struct caller c = caller_connect(TLS1_3_VERSION);
    caller_echo(&c, 100);
    caller_close(&c);
    expect_refusal(&stranger, TLS1_3_VERSION, "not signed by");
}

/* ---- strangers ---- */

/* What a client says first, without a network. */
static size_t client_hello(uint8_t *into, size_t room)
{
    SSL_CTX *context = SSL_CTX_new(TLS_client_method());
    SSL *ssl = SSL_new(context);
    BIO *in = BIO_new(BIO_s_mem()), *out = BIO_new(BIO_s_mem());
    assert_true(context && ssl && in && out);
    SSL_set_bio(ssl, in, out);
    assert_int_equal(SSL_connect(ssl), -1);
    int n = BIO_read(out, into, (int)room);
    assert_true(n > 100);
    SSL_free(ssl);
    SSL_CTX_free(context);
    return (size_t)n;
}

static void every_part_of_a_handshake_is_survived(void **state)
{
    (void)state;
    start(TLS_ASK_NOT, false);
    uint8_t hello[2048];
    size_t len = client_hello(hello, sizeof hello);
    unsigned closed = 0;
    for (size_t cut = 1; cut <= len; cut += 1 + len / 60) {
        int fd = client_open(&house);
        client_send(fd, bytes_of(hello, cut));
        assert_int_equal(shutdown(fd, SHUT_WR), 0);
        uint8_t rest[8192];
        while (recv(fd, rest, sizeof rest, 0) > 0)
            continue;
        (void)close(fd);
        tally_await(&house.closed, ++closed);
    }
    struct caller c = caller_connect(TLS1_3_VERSION);
    caller_echo(&c, 100);
    caller_close(&c);
}

static void garbage_is_survived(void **state)
{
    (void)state;
    start(TLS_ASK_NOT, false);
    struct dice dice = test_dice();
    uint8_t hello[2048], bad[2048];
    size_t len = client_hello(hello, sizeof hello);
    for (unsigned i = 1; i <= 200; i++) {
        memcpy(bad, hello, len);
        for (unsigned n = 1 + (unsigned)dice_below(&dice, 8); n > 0; n--)
            bad[1 + dice_below(&dice, len - 1)] = (uint8_t)dice_next(&dice);
        int fd = client_open(&house);
        client_send(fd, bytes_of(bad, len));
        (void)shutdown(fd, SHUT_WR);
        uint8_t rest[8192];
        while (recv(fd, rest, sizeof rest, 0) > 0)
            continue;
        (void)close(fd);
        tally_await(&house.closed, i);
    }
    struct caller c = caller_connect(TLS1_3_VERSION);
    caller_echo(&c, 100);
    client_send(c.fd, BYTES("\x17\x03\x03\x00\x20 this was never enciphered by anybody"));
    tally_await(&house.closed, 201);
    assert_non_null(strstr(house.last_reason, "TLS"));
    caller_close(&c);
}

static void tick_often(void *user)
{
    loop_expect_idle(user, 1);
}

static void raise_clock(void *user)
{
    clock_manual_advance(&house.clock, *(const int64_t *)user);
}

/* It begins a handshake and says no more; another one has not even begun, which is not a crime. */
static void a_handshake_has_its_time(void **state)
{
    (void)state;
    house.own_clock = true;
    house.n = 1;
    house.limits.idle_ms = 0;
    start(TLS_ASK_NOT, false);
    uint8_t hello[2048];
    (void)client_hello(hello, sizeof hello);
    cleanup(close_at) int silent = client_open(&house);
    cleanup(close_at) int half = client_open(&house);
    client_send(half, bytes_of(hello, 100));
    tally_await(&house.opened, 2);
    struct caller c = caller_connect(TLS1_3_VERSION);
    on_loop(house.loops[0], tick_often, house.loops[0]);
    int64_t step = (int64_t)SHAKE_MAX_MS / 16; /* a tick that comes late closes nobody */
    for (int i = 0; i < 1000 && tally_now(&house.closed) == 0; i++) {
        on_loop(house.loops[0], raise_clock, &step);
        (void)poll(NULL, 0, 10);
    }
    tally_await(&house.closed, 1);
    assert_string_equal(house.last_reason, "the TLS handshake took too long");
    caller_echo(&c, 100);
    plain_echo(silent);
    caller_close(&c);
}

/* TLS 1.2 lets a peer ask for another handshake, which costs us more than it costs the peer. */
static void another_handshake_is_not_granted(void **state)
{
    (void)state;
    start(TLS_ASK_NOT, false);
    struct caller c = caller_connect(TLS1_2_VERSION);
    caller_echo(&c, 100);
    assert_int_equal(SSL_renegotiate(c.ssl), 1);
    if (SSL_do_handshake(c.ssl) == 1) { /* asked; the answer comes with what is read next */
        uint8_t byte;
        size_t n;
        assert_int_equal(SSL_read_ex(c.ssl, &byte, 1, &n), 0);
    }
    ERR_clear_error();
    caller_close(&c);
    struct caller other = caller_connect(TLS1_2_VERSION);
    caller_echo(&other, 100);
    caller_close(&other);
}

/* TLS 1.3 lets a peer ask for new keys as often as it likes. */
static void a_flood_of_new_keys_is_survived(void **state)
{
    (void)state;
    start(TLS_ASK_NOT, false);
    struct caller c = caller_connect(TLS1_3_VERSION);
    for (int i = 0; i < 1000; i++) {
        assert_int_equal(SSL_key_update(c.ssl, SSL_KEY_UPDATE_REQUESTED), 1);
        assert_int_equal(SSL_do_handshake(c.ssl), 1);
    }
    caller_echo(&c, 1000);
    caller_close(&c);
}

/* ---- the house's own life ---- */

static void drain(void *user)
{
    loop_drain(user, house_drained, &house);
}

static void a_house_that_empties_says_its_end_and_waits_for_no_handshake(void **state)
{
    (void)state;
    house.n = 1;
    start(TLS_ASK_NOT, false);
    struct caller c = caller_connect(TLS1_3_VERSION);
    caller_echo(&c, 100);
    cleanup(close_at) int half = client_open(&house);
    uint8_t hello[2048], byte;
    (void)client_hello(hello, sizeof hello);
    client_send(half, bytes_of(hello, 100));
    tally_await(&house.opened, 2);
    on_loop(house.loops[0], drain, house.loops[0]);
    size_t n;
    assert_int_equal(SSL_read_ex(c.ssl, &byte, 1, &n), 0);
    assert_int_equal(SSL_get_error(c.ssl, 0), SSL_ERROR_ZERO_RETURN);
    (void)client_at_end(half);
    caller_close(&c);
    tally_await(&house.drained, 1);
}

static void look_at_memory(void *user)
{
    const struct conn *conn = house.last;
    *(bool *)user = !conn->kept && !conn->out.chunk && !conn->out.first &&
                    !conn->secure->wire.chunk && !conn->secure->wire.first;
}

static void an_idle_connection_owns_no_memory_for_bytes(void **state)
{
    (void)state;
    house.n = 1;
    start(TLS_ASK_NOT, false);
    struct caller c = caller_connect(TLS1_3_VERSION);
    caller_echo(&c, 40000);
    bool none = false;
    on_loop(house.loops[0], look_at_memory, &none);
    assert_true(none);
    assert_house_sleeps(&house);
    caller_close(&c);
}

static void change_certificate(void *user)
{
    listener_secure(house.listener, user, true);
}

/* Who is connected stays; who comes gets the new one. */
static void a_certificate_can_be_replaced(void **state)
{
    (void)state;
    start(TLS_ASK_NOT, false);
    struct caller before = caller_connect(TLS1_3_VERSION);
    struct identity other;
    cert_make(&other, "other", "DNS:localhost", &authority, -DAY, DAY);
    struct tls *tls = server_tls(&other, NULL, TLS_ASK_NOT);
    on_loop(house.loops[0], change_certificate, tls);
    tls_close(tls);
    struct caller after = caller_connect(TLS1_3_VERSION);
    assert_int_equal(X509_cmp(SSL_get0_peer_certificate(after.ssl), other.cert), 0);
    caller_echo(&before, 100);
    caller_echo(&after, 100);
    caller_close(&before);
    caller_close(&after);
    cert_free(&other);
}

int main(void)
{
#define TEST(f) cmocka_unit_test_setup_teardown(f, init, finish)
    const struct CMUnitTest secure[] = {
        TEST(frames_of_every_size_come_back_in_both_versions),
        TEST(many_frames_in_one_go),
        TEST(records_of_one_byte_are_taken_in_their_turn),
        TEST(one_port_serves_plain_and_secret_peers),
        TEST(what_is_written_before_the_first_byte_leaves_after_it),
        TEST(whoever_speaks_plainly_is_refused_where_tls_is_enforced),
        TEST(a_slow_reader_gets_everything_and_slices_are_let_go_once),
        TEST(a_peer_that_goes_away_takes_its_slices_with_it),
        TEST(the_end_is_said_behind_the_last_byte),
        TEST(a_peer_may_say_its_end_first),
        TEST(clients_show_a_certificate_where_it_is_demanded),
        TEST(asking_is_not_demanding),
        TEST(every_part_of_a_handshake_is_survived),
        TEST(garbage_is_survived),
        TEST(a_handshake_has_its_time),
        TEST(another_handshake_is_not_granted),
        TEST(a_flood_of_new_keys_is_survived),
        TEST(a_house_that_empties_says_its_end_and_waits_for_no_handshake),
        TEST(an_idle_connection_owns_no_memory_for_bytes),
        TEST(a_certificate_can_be_replaced),
    };
    return cmocka_run_group_tests(secure, init_all, finish_all);
}
