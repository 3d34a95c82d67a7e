/* TLS of those whom we call: what a dial accepts, what it refuses, and in which words. */
#include "io/cert_test.h"

static struct house house; /* the server */
static struct identity authority, server, elsewhere, expired, early, alien, member;

/* What the dial has come to. */
static struct tally connected, failed, closed, answered;
static char failed_reason[500], closed_reason[500];
static struct io_limits limits = IO_LIMITS_DEFAULT;
static struct dial *dial;

static int init_all(void **state)
{
    (void)state;
    certs_open();
    cert_make(&authority, "authority", NULL, NULL, -DAY, DAY);
    cert_make(&server, "server", "DNS:localhost,IP:127.0.0.1", &authority, -DAY, DAY);
    cert_make(&elsewhere, "elsewhere", "DNS:a.example,DNS:*.b.example,IP:10.0.0.9", &authority,
              -DAY, DAY);
    cert_make(&expired, "expired", "IP:127.0.0.1", &authority, -2 * DAY, -DAY);
    cert_make(&early, "early", "IP:127.0.0.1", &authority, DAY, 2 * DAY);
    cert_make(&alien, "alien", "IP:127.0.0.1", NULL, -DAY, DAY);
    cert_make(&member, "member", "DNS:member", &authority, -DAY, DAY);
    return 0;
}

static int finish_all(void **state)
{
    (void)state;
    struct identity *all[] = {&authority, &server, &elsewhere, &expired, &early, &alien, &member};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        cert_free(all[i]);
    certs_close();
    return 0;
}

static int init(void **state)
{
    (void)state;
    house_init(&house, 1);
    struct tally *tallies[] = {&connected, &failed, &closed, &answered};
    for (size_t i = 0; i < sizeof tallies / sizeof tallies[0]; i++)
        tally_init(tallies[i]);
    dial = NULL;
    return 0;
}

static int finish(void **state)
{
    (void)state;
    house_close(&house);
    return 0;
}

/* ---- the dial's own side: asks once for an echo ---- */

static void tell(struct tally *tally, char *into, const char *reason)
{
    room_enter(&tally->room);
    if (tally->n == 0)
        (void)snprintf(into, 500, "%s", reason);
    tally->n++;
    room_tell(&tally->room);
    room_leave(&tally->room);
}

static size_t caller_input(void *user, struct conn *conn, struct bytes in)
{
    (void)user, (void)conn;
    if (in.len < 5000)
        return 0;
    assert_int_equal(in.len, 5000);
    tally_add(&answered);
    return in.len;
}

static void *caller_opened(void *context, struct conn *conn)
{
    uint8_t frame[5000];
    (void)frame_put(frame, VERB_ECHO, sizeof frame, 4);
    conn_write(conn, bytes_of(frame, sizeof frame));
    tally_add(&connected);
    return context;
}

static void caller_closed(void *user, struct conn *conn, const char *reason)
{
    (void)user, (void)conn;
    tell(&closed, closed_reason, reason);
}

static void caller_failed(void *context, const char *reason)
{
    (void)context;
    tell(&failed, failed_reason, reason);
}

static const struct conn_ops caller_ops = {caller_input, caller_opened, caller_closed,
                                           caller_failed};

static void call(const struct addr *addr, const struct tls_options *options, const char *host)
{
    struct tls *tls;
    assert_int_equal(dial_open(house.loops[0], addr, &caller_ops, &house, &limits, &dial), OK);
    if (!options)
        return;
    assert_int_equal(tls_open_client(options, &tls, NULL), OK);
    assert_int_equal(dial_secure(dial, tls, host), OK);
    tls_close(tls);
}

/* A server with this certificate, called with these options. */
static void meet(const struct identity *who, enum tls_ask ask, const struct tls_options *options,
                 const char *host)
{
    house_open(&house);
    struct tls *tls = server_tls(who, &authority, ask);
    listener_secure(house.listener, tls, true);
    tls_close(tls);
    call(listener_addr(house.listener), options, host);
    house_run(&house);
}

static void expect_failure(const char *words)
{
    tally_await(&failed, 1);
    assert_int_equal(tally_now(&connected), 0); /* nobody was told of a connection */
    if (!strstr(failed_reason, words))
        fail_msg("%s", failed_reason);
}

static struct tls_options trusting(void)
{
    return (struct tls_options){.ca = authority.cert_path};
}

/* ---- tests ---- */

static void an_address_and_a_name_are_accepted_when_the_certificate_has_them(void **state)
{
    const char *hosts[] = {NULL, "localhost", "127.0.0.1"};
    for (size_t i = 0; i < 3; i++) {
        struct tls_options o = trusting();
        if (i > 0)
            assert_int_equal(init(state), 0);
        meet(&server, TLS_ASK_NOT, &o, hosts[i]);
        tally_await(&answered, 1);
        if (i < 2)
            assert_int_equal(finish(state), 0);
    }
}

static void a_certificate_for_another_name_is_refused(void **state)
{
    (void)state;
    struct tls_options o = trusting();
    meet(&elsewhere, TLS_ASK_NOT, &o, "localhost");
    expect_failure("is not for that name: it is for \"a.example, *.b.example, 10.0.0.9\"");
    assert_non_null(strstr(failed_reason, "the certificate of localhost:"));
}

static void a_certificate_for_another_address_is_refused(void **state)
{
    (void)state;
    struct tls_options o = trusting();
    meet(&elsewhere, TLS_ASK_NOT, &o, NULL);
    expect_failure("is not for that name: it is for \"a.example");
    assert_non_null(strstr(failed_reason, "the certificate of 127.0.0.1:"));
}

static void an_unknown_authority_is_refused_by_the_name_of_its_file(void **state)
{
    (void)state;
    struct tls_options o = trusting();
    meet(&alien, TLS_ASK_NOT, &o, NULL);
    expect_failure("is not signed by an authority in ");
    assert_non_null(strstr(failed_reason, authority.cert_path));
}

static void an_authority_that_the_system_does_not_know_is_refused(void **state)
{
    (void)state;
    struct tls_options o = {0};
    meet(&server, TLS_ASK_NOT, &o, NULL);
    expect_failure("is not signed by an authority that this system trusts");
}

static void an_old_certificate_is_refused_with_its_date(void **state)
{
    (void)state;
    struct tls_options o = trusting();
    meet(&expired, TLS_ASK_NOT, &o, NULL);
    expect_failure("expired on 2");
}

static void a_certificate_from_the_future_is_refused(void **state)
{
    (void)state;
    struct tls_options o = trusting();
    meet(&early, TLS_ASK_NOT, &o, NULL);
    expect_failure("is good from 2");
}

static void who_trusts_all_is_content_with_anything(void **state)
{
    (void)state;
    struct tls_options o = {.trust_all = true};
    meet(&expired, TLS_ASK_NOT, &o, "somewhere.example");
    tally_await(&answered, 1);
}

/* Nobody can know it, and so only who trusts all is content. */
static void a_made_up_certificate_is_as_good_as_none(void **state)
{
    (void)state;
    house_open(&house);
    struct tls *tls;
    assert_int_equal(tls_open_server(&(struct tls_options){.made_up = true}, &tls, NULL), OK);
    listener_secure(house.listener, tls, true);
    tls_close(tls);
    struct tls_options careful = trusting(), careless = {.trust_all = true};
    call(listener_addr(house.listener), &careful, "localhost");
    call(listener_addr(house.listener), &careless, "localhost");
    house_run(&house);
    tally_await(&failed, 1);
    assert_non_null(strstr(failed_reason, "is not signed by an authority in "));
    tally_await(&answered, 1);
}

static void a_certificate_of_ours_is_shown_where_it_is_demanded(void **state)
{
    (void)state;
    struct tls_options o = trusting();
    o.cert = member.cert_path;
    o.key = member.key_path;
    meet(&server, TLS_DEMAND, &o, NULL);
    tally_await(&answered, 1);
}

/* In TLS 1.3 the refusal comes when we think that all is well. */
static void without_one_the_refusal_says_so(void **state)
{
    (void)state;
    struct tls_options o = trusting();
    meet(&server, TLS_DEMAND, &o, NULL);
    tally_await(&closed, 1);
    assert_int_equal(tally_now(&answered), 0);
    if (!strstr(closed_reason, "it may demand a certificate from us, and none is set"))
        fail_msg("%s", closed_reason);
}

static void a_wrong_one_is_refused_in_words(void **state)
{
    (void)state;
    struct tls_options o = trusting();
    o.cert = alien.cert_path;
    o.key = alien.key_path;
    meet(&server, TLS_DEMAND, &o, NULL);
    tally_await(&closed, 1);
    if (!strstr(closed_reason, "it does not accept our certificate"))
        fail_msg("%s", closed_reason);
}

/* ---- who does not speak TLS ---- */

static int listen_by_hand(struct addr *addr)
{
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_true(fd >= 0);
    union sock name;
    socklen_t len = sock_from_addr(test_loopback(), &name);
    assert_int_equal(bind(fd, &name.any, len), 0);
    assert_int_equal(listen(fd, 10), 0);
    *addr = sock_name(fd);
    return fd;
}

/* Takes one call, and does what `words` say: NULL hangs up at once, "" says nothing. */
static int take_call(int listener, const char *words)
{
    struct pollfd readable = {.fd = listener, .events = POLLIN};
    assert_int_equal(poll(&readable, 1, AWAIT_MS), 1);
    int fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
    assert_true(fd >= 0);
    uint8_t hello[4096];
    assert_true(recv(fd, hello, sizeof hello, 0) > 0);
    if (words)
        client_send(fd, bytes_str(words));
    else
        (void)shutdown(fd, SHUT_RDWR);
    return fd;
}

static void expect_by_hand(const char *says, const char *words)
{
    struct addr addr;
    cleanup(close_at) int listener = listen_by_hand(&addr);
    struct tls_options o = trusting();
    house_open(&house);
    call(&addr, &o, NULL);
    house_run(&house);
    cleanup(close_at) int fd = take_call(listener, says);
    expect_failure(words);
}

static void a_plain_server_that_hangs_up_is_told_from_a_broken_one(void **state)
{
    (void)state;
    expect_by_hand(NULL, "hung up in the TLS handshake; perhaps it does not offer TLS");
}

static void a_server_that_speaks_another_language_is_refused(void **state)
{
    (void)state;
    expect_by_hand("HTTP/1.1 400 Bad Request\r\n\r\n", "is not TLS");
}

static void a_server_that_says_nothing_is_left_in_time(void **state)
{
    (void)state;
    expect_by_hand("", "no answer to the TLS handshake");
}

static void a_plain_call_where_tls_is_demanded_says_what_may_be_wrong(void **state)
{
    (void)state;
    meet(&server, TLS_ASK_NOT, NULL, NULL);
    tally_await(&closed, 1);
    assert_non_null(strstr(closed_reason, "perhaps it demands TLS"));
}

/* ---- ends and beginnings ---- */

static void hang_up(void *user)
{
    (void)user;
    dial_close(take(&dial));
}

/* In the middle of a handshake that does not get on. */
static void a_dial_can_be_closed_at_any_time(void **state)
{
    (void)state;
    struct addr addr;
    cleanup(close_at) int listener = listen_by_hand(&addr);
    struct tls_options o = trusting();
    house_open(&house);
    call(&addr, &o, NULL);
    house_run(&house);
    cleanup(close_at) int fd = take_call(listener, "\x16\x03\x03");
    on_loop(house.loops[0], hang_up, NULL);
    assert_int_equal(tally_now(&connected), 0);
    assert_int_equal(tally_now(&closed), 0);
}

static void after_a_failure_it_is_tried_again(void **state)
{
    (void)state;
    struct addr addr;
    cleanup(close_at) int listener = listen_by_hand(&addr);
    struct tls_options o = trusting();
    house_open(&house);
    call(&addr, &o, NULL);
    house_run(&house);
    for (unsigned i = 1; i <= 3; i++) {
        cleanup(close_at) int fd = take_call(listener, NULL);
        tally_await(&failed, i);
    }
}

/* ---- files ---- */

static void expect_fault(const struct tls_options *options, const char *words)
{
    struct tls *tls;
    struct fault why = {0};
    assert_int_equal(tls_open_client(options, &tls, &why), ERR_INVALID);
    if (!strstr(why.text, words))
        fail_msg("%s", why.text);
}

static void files_that_are_not_what_they_should_be_are_named(void **state)
{
    (void)state;
    char nowhere[300];
    (void)snprintf(nowhere, sizeof nowhere, "%s/nowhere.pem", certs_folder);
    expect_fault(&(struct tls_options){.ca = nowhere}, nowhere);
    expect_fault(&(struct tls_options){.ca = server.key_path}, server.key_path);
    expect_fault(&(struct tls_options){.cert = nowhere, .key = server.key_path}, nowhere);
    expect_fault(&(struct tls_options){.cert = server.cert_path, .key = nowhere}, nowhere);
    expect_fault(&(struct tls_options){.cert = server.cert_path}, "the key is missing");
    expect_fault(&(struct tls_options){.key = server.key_path}, "the certificate is missing");
    expect_fault(&(struct tls_options){.cert = server.cert_path, .key = member.key_path},
                 member.key_path);
    cert_save(&member, "locked", "sesame");
    expect_fault(&(struct tls_options){.cert = member.cert_path, .key = member.key_path},
                 "without a password");
    cert_save(&member, "member", NULL);

    struct tls *tls;
    struct fault why = {0};
    assert_int_equal(tls_open_server(&(struct tls_options){0}, &tls, &why), ERR_INVALID);
    assert_non_null(strstr(why.text, "needs a certificate"));
}

int main(void)
{
#define TEST(f) cmocka_unit_test_setup_teardown(f, init, finish)
    const struct CMUnitTest secure_dial[] = {
        TEST(an_address_and_a_name_are_accepted_when_the_certificate_has_them),
        TEST(a_certificate_for_another_name_is_refused),
        TEST(a_certificate_for_another_address_is_refused),
        TEST(an_unknown_authority_is_refused_by_the_name_of_its_file),
        TEST(an_authority_that_the_system_does_not_know_is_refused),
        TEST(an_old_certificate_is_refused_with_its_date),
        TEST(a_certificate_from_the_future_is_refused),
        TEST(who_trusts_all_is_content_with_anything),
        TEST(a_made_up_certificate_is_as_good_as_none),
        TEST(a_certificate_of_ours_is_shown_where_it_is_demanded),
        TEST(without_one_the_refusal_says_so),
        TEST(a_wrong_one_is_refused_in_words),
        TEST(a_plain_server_that_hangs_up_is_told_from_a_broken_one),
        TEST(a_server_that_speaks_another_language_is_refused),
        TEST(a_server_that_says_nothing_is_left_in_time),
        TEST(a_plain_call_where_tls_is_demanded_says_what_may_be_wrong),
        TEST(a_dial_can_be_closed_at_any_time),
        TEST(after_a_failure_it_is_tried_again),
        cmocka_unit_test(files_that_are_not_what_they_should_be_are_named),
    };
    return cmocka_run_group_tests(secure_dial, init_all, finish_all);
}
