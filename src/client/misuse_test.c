/* misuse_test.c - calls that make no sense have a defined result: through the public header only.
 */
#include "oncemq.h"

#include "base/test.h"

#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

/* Nobody listens on port 1. */
static const struct omq_client_options nowhere = {.names = "127.0.0.1:1"};

static struct omq_client *client_new(void)
{
    struct omq_client *client;
    assert_int_equal(omq_client_open(&nowhere, &client, NULL), OMQ_OK);
    return client;
}

static struct omq_producer *producer_new(struct omq_client *client)
{
    struct omq_producer *producer;
    const struct omq_producer_options o = {.group = "g", .timeout_ms = 300, .retries = -1};
    assert_int_equal(omq_producer_open(client, &o, &producer, NULL), OMQ_OK);
    return producer;
}

static const struct omq_message message = {.topic = "T", .body = "x", .body_size = 1};

static void ignore(void *user, const struct omq_receipt *receipt, const struct omq_error *why)
{
    (void)user;
    (void)receipt;
    (void)why;
}

static int commit(void *user, const struct omq_message *m, const struct omq_receipt *receipt)
{
    (void)user;
    (void)m;
    (void)receipt;
    return OMQ_COMMIT;
}

static int unknown(void *user, const struct omq_delivery *half)
{
    (void)user;
    (void)half;
    return OMQ_UNKNOWN;
}

/* Every way to send, with the same producer and message: all must give the same code. */
static void assert_all_say(struct omq_producer *p, const struct omq_message *m, int wanted)
{
    struct omq_error why = {0};
    struct omq_delivery *reply;
    assert_int_equal(omq_send(p, m, NULL, &why), wanted);
    assert_int_equal(why.code, wanted);
    assert_true(strlen(why.text) > 5);
    assert_int_equal(omq_send(p, m, NULL, NULL), wanted);
    assert_int_equal(omq_send_async(p, m, ignore, NULL, &why), wanted);
    assert_int_equal(omq_send_oneway(p, m, &why), wanted);
    assert_int_equal(omq_send_batch(p, m, 1, NULL, NULL, &why), wanted);
    assert_int_equal(omq_send_transaction(p, m, commit, NULL, NULL, NULL, &why), wanted);
    assert_int_equal(omq_request(p, m, 100, &reply, &why), wanted);
}

static void null_is_an_argument_like_any_other(void **state)
{
    (void)state;
    struct omq_client *client = NULL;
    struct omq_producer *producer = NULL;
    struct omq_error why;
    assert_int_equal(omq_client_open(NULL, &client, &why), OMQ_INVALID);
    assert_int_equal(omq_client_open(&nowhere, NULL, &why), OMQ_INVALID);
    assert_int_equal(omq_client_open(&(struct omq_client_options){0}, &client, &why), OMQ_INVALID);
    client = client_new();
    const struct omq_producer_options o = {.group = "g"};
    assert_int_equal(omq_producer_open(NULL, &o, &producer, &why), OMQ_INVALID);
    assert_int_equal(omq_producer_open(client, NULL, &producer, &why), OMQ_INVALID);
    assert_int_equal(omq_producer_open(client, &o, NULL, &why), OMQ_INVALID);
    assert_null(producer);
    assert_all_say(NULL, &message, OMQ_INVALID);
    producer = producer_new(client);
    assert_all_say(producer, NULL, OMQ_INVALID);
    assert_all_say(producer, &(struct omq_message){.body = "x", .body_size = 1}, OMQ_INVALID);
    assert_int_equal(omq_send_async(producer, &message, NULL, NULL, &why), OMQ_INVALID);
    assert_int_equal(omq_send_batch(producer, &message, 0, NULL, NULL, &why), OMQ_INVALID);
    assert_int_equal(omq_request(producer, &message, 100, NULL, &why), OMQ_INVALID);
    assert_int_equal(omq_recall(producer, NULL, "x", &why), OMQ_INVALID);
    assert_int_equal(omq_recall(producer, "T", NULL, &why), OMQ_INVALID);
    assert_int_equal(omq_recall(producer, "T", "not a handle", &why), OMQ_INVALID);
    assert_int_equal(omq_reply(producer, NULL, "x", 1, &why), OMQ_INVALID);
    struct omq_stats stats = {.sent = 5};
    omq_client_stats(NULL, &stats);
    assert_int_equal(stats.sent, 0);
    omq_client_stats(client, NULL);
    assert_string_equal(omq_client_id(NULL), "");
    omq_producer_close(NULL);
    omq_client_close(NULL);
    omq_delivery_free(NULL);
    omq_queues_free(NULL);
    omq_client_close(client); /* and its producer with it */
}

static void questions_without_sense_are_refused(void **state)
{
    (void)state;
    struct omq_client *client = client_new();
    struct omq_error why;
    struct omq_queue *queues;
    struct omq_delivery *found;
    size_t n;
    int64_t offset;
    const struct omq_queue queue = {.topic = "T", .broker = "b"};
    assert_int_equal(omq_topic_queues(NULL, "T", &queues, &n, &why), OMQ_INVALID);
    assert_int_equal(omq_topic_queues(client, NULL, &queues, &n, &why), OMQ_INVALID);
    assert_int_equal(omq_offset(NULL, &queue, OMQ_END, &offset, &why), OMQ_INVALID);
    assert_int_equal(omq_offset(client, NULL, OMQ_END, &offset, &why), OMQ_INVALID);
    assert_int_equal(omq_offset(client, &queue, 77, &offset, &why), OMQ_INVALID);
    assert_int_equal(omq_offset(client, &queue, OMQ_END, NULL, &why), OMQ_INVALID);
    assert_int_equal(omq_offset_at(client, &(struct omq_queue){0}, 0, &offset, &why), OMQ_INVALID);
    assert_int_equal(omq_view(client, NULL, NULL, &found, &why), OMQ_INVALID);
    assert_int_equal(omq_view(client, NULL, "0000", &found, &why), OMQ_INVALID);
    assert_int_equal(omq_topic_readable(client, NULL, &queues, &n, &why), OMQ_INVALID);
    struct omq_found several;
    const struct omq_query queries[] = {{.topic = "T"},
                                        {.key = "k"},
                                        {.topic = "T", .key = "k", .id = "i"},
                                        {.topic = "T", .id = ""}};
    for (size_t i = 0; i < sizeof queries / sizeof *queries; i++)
        assert_int_equal(omq_query(client, &queries[i], &several, &why), OMQ_INVALID);
    assert_int_equal(omq_query(NULL, &queries[0], &several, &why), OMQ_INVALID);
    assert_int_equal(omq_query(client, NULL, &several, &why), OMQ_INVALID);
    const struct omq_read reads[] = {{.offset = 1},
                                     {.queue = queue, .offset = -1},
                                     {.queue = {.topic = "T", .broker = "b", .id = -1}}};
    for (size_t i = 0; i < sizeof reads / sizeof *reads; i++)
        assert_int_equal(omq_read(client, &reads[i], &several, &offset, &why), OMQ_INVALID);
    omq_found_free(NULL);
    omq_found_free(&(struct omq_found){0});
    assert_int_equal(omq_offset(client, &queue, OMQ_END, &offset, &why), OMQ_NETWORK);
    assert_non_null(strstr(why.text, "T"));
    omq_client_close(client);
}

/* Of many requests either all are asked or none; a server that is not there fails its own only. */
static void requests_without_sense_are_refused(void **state)
{
    (void)state;
    struct omq_client *client = client_new();
    struct omq_error why;
    struct omq_answer *answer;
    enum { MANY = 200 };
    static struct omq_question all[MANY];
    for (size_t i = 0; i < MANY; i++)
        all[i] = (struct omq_question){.server = i % 2 ? "127.0.0.1:1" : NULL, .request = 28};
    assert_int_equal(omq_call(client, NULL, 28, NULL, 0, NULL, 0, 0, NULL, &why), OMQ_INVALID);
    assert_int_equal(omq_call(NULL, NULL, 28, NULL, 0, NULL, 0, 0, &answer, &why), OMQ_INVALID);
    assert_int_equal(omq_call_all(NULL, all, MANY, 0, &why), OMQ_INVALID);
    assert_int_equal(omq_call_all(client, NULL, 1, 0, &why), OMQ_INVALID);
    assert_int_equal(omq_call_all(client, NULL, 0, 0, &why), OMQ_OK);
    all[MANY - 1].n_fields = 1;
    assert_int_equal(omq_call_all(client, all, MANY, 0, &why), OMQ_INVALID);
    all[MANY - 1].fields = &(struct omq_property){.name = "topic"};
    assert_int_equal(omq_call_all(client, all, MANY, 0, &why), OMQ_INVALID);
    all[MANY - 1].n_fields = 0;
    assert_int_equal(omq_call_all(client, all, MANY, 0, &why), OMQ_OK);
    for (size_t i = 0; i < MANY; i++) {
        assert_int_equal(all[i].code, OMQ_NETWORK);
        assert_null(all[i].answer);
        assert_non_null(strstr(all[i].why.text, i % 2 ? "127.0.0.1:1" : "name server"));
    }
    omq_client_close(client);
}

struct heard {
    struct omq_client *client;
    _Atomic int times;
    int code, again; /* of a call that is made from inside `done` */
};

static void hear(void *user, const struct omq_answer *answer, const struct omq_error *why)
{
    struct heard *heard = user;
    assert_null(answer);
    heard->code = why->code;
    heard->again =
        omq_call_async(heard->client, &(struct omq_question){.request = 28}, 100, hear, user, NULL);
    heard->times++;
}

static int listen_silently(char *address, size_t size)
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof at;
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    assert_int_equal(bind(fd, (struct sockaddr *)&at, sizeof at), 0);
    assert_int_equal(listen(fd, 1), 0);
    assert_int_equal(getsockname(fd, (struct sockaddr *)&at, &len), 0);
    (void)snprintf(address, size, "127.0.0.1:%u", ntohs(at.sin_port));
    return fd;
}

/* No route names the server, and it says nothing: the connection is kept as long as somebody waits,
 * and the close ends the call. Its `done` hears that no other can be begun. */
static void a_call_that_nobody_waits_for_ends_with_its_client(void **state)
{
    (void)state;
    char address[32], text[4096];
    int server = listen_silently(address, sizeof address);
    const struct omq_client_options o = {.names = "127.0.0.1:1", .route_every_ms = 20};
    struct heard heard = {0};
    assert_int_equal(omq_client_open(&o, &heard.client, NULL), OMQ_OK);
    const struct omq_question q = {.server = address, .request = 28};
    struct omq_error why;
    assert_int_equal(omq_call_async(NULL, &q, 0, hear, &heard, &why), OMQ_INVALID);
    assert_int_equal(omq_call_async(heard.client, NULL, 0, hear, &heard, &why), OMQ_INVALID);
    assert_int_equal(omq_call_async(heard.client, &q, 0, NULL, &heard, &why), OMQ_INVALID);
    assert_int_equal(omq_call_async(heard.client, &q, 60000, hear, &heard, &why), OMQ_OK);
    int peer = accept(server, NULL, NULL);
    struct pollfd news = {.fd = peer, .events = POLLIN};
    assert_true(poll(&news, 1, 10000) == 1 && read(peer, text, sizeof text) > 0);
    assert_int_equal(poll(&news, 1, 200),
                     0); /* ten looks at the routes: neither bytes nor an end */
    omq_client_close(heard.client);
    assert_int_equal(heard.times, 1);
    assert_int_equal(heard.code, OMQ_CLOSED);
    assert_int_equal(heard.again, OMQ_CLOSED);
    (void)close(peer);
    (void)close(server);
}

static void options_without_sense_are_refused(void **state)
{
    (void)state;
    struct omq_error why;
    struct omq_client *client;
    static const char *const names[] = {"", ";;", "host", "host;host:1", " "};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        assert_int_equal(
            omq_client_open(&(struct omq_client_options){.names = names[i]}, &client, &why),
            OMQ_INVALID);
    client = client_new();
    static const struct omq_producer_options bad[] = {
        {.group = ""},
        {.group = "with blanks"},
        {.group = "DEFAULT_PRODUCER"},
        {.group = "g", .compression = 7},
        {.group = "g", .max_message_size = SIZE_MAX},
        {.group = "g", .trace_topic = "no topic"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        struct omq_producer *producer = NULL;
        assert_int_equal(omq_producer_open(client, &bad[i], &producer, &why), OMQ_INVALID);
        assert_null(producer);
    }
    omq_client_close(client);
}

/* A closed producer says so as long as its client is open; also while another took its place. */
static void a_closed_producer_says_so(void **state)
{
    (void)state;
    struct omq_client *client = client_new();
    struct omq_producer *first = producer_new(client);
    omq_producer_close(first);
    assert_all_say(first, &message, OMQ_CLOSED);
    assert_int_equal(omq_recall(first, "T", "x", NULL), OMQ_CLOSED);
    omq_producer_close(first); /* nothing happens */
    for (int i = 0; i < 100; i++)
        omq_producer_close(producer_new(client));
    assert_all_say(first, &message, OMQ_CLOSED);
    omq_client_close(client);
}

static struct omq_consumer *consumer_new(struct omq_client *client)
{
    static const struct omq_subscription topic = {.topic = "T"};
    const struct omq_consumer_options o = {
        .group = "g", .subscriptions = &topic, .n_subscriptions = 1, .close_ms = 100};
    struct omq_consumer *consumer;
    assert_int_equal(omq_consumer_open(client, &o, &consumer, NULL), OMQ_OK);
    return consumer;
}

static struct omq_reader *reader_new(struct omq_client *client)
{
    const struct omq_reader_options o = {.group = "g"};
    struct omq_reader *reader;
    assert_int_equal(omq_reader_open(client, &o, &reader, NULL), OMQ_OK);
    return reader;
}

static void a_closed_consumer_says_so(void **state)
{
    (void)state;
    struct omq_client *client = client_new();
    struct omq_consumer *c = consumer_new(client);
    const struct omq_subscription topic = {.topic = "U"}, sql = {"U", "a = 1", true};
    struct omq_batch *batch;
    struct omq_error why;
    omq_consumer_close(c);
    assert_int_equal(omq_consumer_take(c, 1000, &batch, &why), OMQ_CLOSED);
    assert_true(strlen(why.text) > 5);
    assert_int_equal(omq_consumer_subscribe(c, &topic, &why), OMQ_CLOSED);
    assert_int_equal(omq_consumer_subscribe(c, &sql, &why), OMQ_CLOSED);
    assert_int_equal(omq_consumer_unsubscribe(c, "T", &why), OMQ_CLOSED);
    omq_consumer_pause(c);
    omq_consumer_resume(c);
    omq_consumer_close(c); /* nothing happens */
    omq_client_close(client);
}

static void a_closed_reader_says_so(void **state)
{
    (void)state;
    struct omq_client *client = client_new();
    struct omq_reader *r = reader_new(client);
    const struct omq_subscription topic = {.topic = "U"};
    const struct omq_queue queue = {"T", "b", 0};
    struct omq_batch *batch;
    int64_t offset;
    omq_reader_close(r);
    assert_int_equal(omq_reader_take(r, 1000, &batch, NULL), OMQ_CLOSED);
    assert_int_equal(omq_reader_subscribe(r, &topic, NULL), OMQ_CLOSED);
    assert_int_equal(omq_reader_assign(r, &queue, 1, NULL), OMQ_CLOSED);
    assert_int_equal(omq_reader_seek(r, &queue, 0, NULL), OMQ_CLOSED);
    assert_int_equal(omq_reader_commit(r, NULL), OMQ_CLOSED);
    assert_int_equal(omq_reader_commit_async(r, NULL), OMQ_CLOSED);
    assert_int_equal(omq_reader_committed(r, &queue, &offset, NULL), OMQ_CLOSED);
    omq_reader_close(r);
    omq_client_close(client);
}

/* The memory of one that is closed is the next one's, whichever of the two it is. */
static void closed_ones_do_not_pile_up(void **state)
{
    (void)state;
    struct omq_client *client = client_new();
    struct omq_consumer *first = consumer_new(client);
    omq_consumer_close(first);
    for (int i = 0; i < 50; i++) {
        struct omq_reader *reader = reader_new(client);
        assert_ptr_equal((void *)reader, (void *)first);
        omq_reader_close(reader);
        struct omq_consumer *consumer = consumer_new(client);
        assert_ptr_equal(consumer, first);
        omq_consumer_close(consumer);
    }
    omq_client_close(client);
}

/* ---- from callbacks ---- */

struct inside {
    struct omq_client *client;
    struct omq_producer *producer;
    int open, send, async, logged;
    int called;
    pthread_mutex_t key;
    pthread_cond_t news;
};

static void note(void *user, int level, const char *line)
{
    struct inside *in = user;
    if (level == OMQ_ERROR && strstr(line, "callback"))
        in->logged++;
}

static void told(struct inside *in)
{
    assert_int_equal(pthread_mutex_lock(&in->key), 0);
    in->called++;
    assert_int_equal(pthread_cond_signal(&in->news), 0);
    assert_int_equal(pthread_mutex_unlock(&in->key), 0);
}

static void second(void *user, const struct omq_receipt *receipt, const struct omq_error *why)
{
    (void)receipt;
    (void)why;
    told(user);
}

static void first_call(void *user, const struct omq_receipt *receipt, const struct omq_error *why)
{
    struct inside *in = user;
    assert_null(receipt);
    assert_int_equal(why->code, OMQ_NETWORK);
    struct omq_producer *other;
    const struct omq_producer_options o = {.group = "g2"};
    omq_producer_close(in->producer);
    omq_client_close(in->client);
    in->open = omq_producer_open(in->client, &o, &other, NULL);
    in->send = omq_send(in->producer, &message, NULL, NULL);
    in->async = omq_send_async(in->producer, &message, second, in, NULL);
    told(in);
}

/* From its own callback a close does nothing but say so in the log; a send is a send. */
static void callbacks_may_call_back(void **state)
{
    (void)state;
    struct inside in = {.key = PTHREAD_MUTEX_INITIALIZER, .news = PTHREAD_COND_INITIALIZER};
    struct omq_client_options o = nowhere;
    o.log = note;
    o.user = &in;
    assert_int_equal(omq_client_open(&o, &in.client, NULL), OMQ_OK);
    in.producer = producer_new(in.client);
    assert_int_equal(omq_send_async(in.producer, &message, first_call, &in, NULL), OMQ_OK);
    assert_int_equal(pthread_mutex_lock(&in.key), 0);
    while (in.called < 2)
        assert_int_equal(pthread_cond_wait(&in.news, &in.key), 0);
    assert_int_equal(pthread_mutex_unlock(&in.key), 0);
    assert_int_equal(in.open, OMQ_MISUSE);
    assert_int_equal(in.send, OMQ_NETWORK);
    assert_int_equal(in.async, OMQ_OK);
    assert_int_equal(in.logged, 2);
    omq_client_close(in.client);
    assert_int_equal(in.called, 2); /* and none afterwards */
}

struct from_log {
    struct omq_producer *producer;
    int send, tried;
};

static void send_from_log(void *user, int level, const char *line)
{
    struct from_log *f = user;
    (void)level;
    (void)line;
    if (f->producer && !f->tried++)
        f->send = omq_send(f->producer, &message, NULL, NULL);
}

/* `log` runs on the thread that does all the work: what waits for that work cannot be called. */
static void nothing_waits_on_the_working_thread(void **state)
{
    (void)state;
    struct from_log f = {0};
    struct omq_client_options o = nowhere;
    o.log = send_from_log;
    o.user = &f;
    struct omq_client *client;
    assert_int_equal(omq_client_open(&o, &client, NULL), OMQ_OK);
    f.producer = producer_new(client);
    assert_int_equal(omq_send(f.producer, &message, NULL, NULL), OMQ_NETWORK);
    omq_client_close(client);
    assert_true(f.tried > 0);
    assert_int_equal(f.send, OMQ_MISUSE);
}

static void a_transaction_needs_somebody_to_ask(void **state)
{
    (void)state;
    struct omq_client *client = client_new();
    struct omq_error why;
    struct omq_producer *p = producer_new(client);
    assert_int_equal(omq_send_transaction(p, &message, commit, NULL, NULL, NULL, &why),
                     OMQ_INVALID);
    assert_non_null(strstr(why.text, "check"));
    const struct omq_producer_options o = {
        .group = "t", .check = unknown, .timeout_ms = 300, .retries = -1};
    assert_int_equal(omq_producer_open(client, &o, &p, NULL), OMQ_OK);
    assert_int_equal(omq_send_transaction(p, &message, NULL, NULL, NULL, NULL, &why), OMQ_INVALID);
    struct omq_message later = message;
    later.delay_level = 1;
    assert_int_equal(omq_send_transaction(p, &later, commit, NULL, NULL, NULL, &why), OMQ_INVALID);
    assert_int_equal(omq_send_transaction(p, &message, commit, NULL, NULL, NULL, &why),
                     OMQ_NETWORK);
    omq_client_close(client);
}

/* ---- closing while others send ---- */

struct race {
    struct omq_producer *producer;
    _Atomic int codes[OMQ_KEPT + 1];
};

static void *send_until_closed(void *arg)
{
    struct race *race = arg;
    for (int code = OMQ_OK; code != OMQ_CLOSED;) {
        code = omq_send_oneway(race->producer, &message, NULL);
        race->codes[code]++;
    }
    return NULL;
}

/* Threads that send while the producer is closed are told, and none touches what is gone. */
static void a_close_may_meet_sends(void **state)
{
    (void)state;
    struct omq_client *client = client_new();
    for (int round = 0; round < 20; round++) {
        struct race race = {.producer = producer_new(client)};
        pthread_t threads[3];
        for (int i = 0; i < 3; i++)
            assert_int_equal(pthread_create(&threads[i], NULL, send_until_closed, &race), 0);
        while (race.codes[OMQ_OK] < 10)
            (void)usleep(100);
        omq_producer_close(race.producer);
        for (int i = 0; i < 3; i++)
            assert_int_equal(pthread_join(threads[i], NULL), 0);
        assert_int_equal(race.codes[OMQ_CLOSED], 3);
    }
    omq_client_close(client);
}

static void every_code_has_a_text(void **state)
{
    (void)state;
    for (int code = OMQ_OK; code <= OMQ_KEPT; code++)
        assert_true(strlen(omq_code_text(code)) > 1);
    assert_string_equal(omq_code_text(-1), omq_code_text(OMQ_KEPT + 1));
    assert_string_equal(omq_version(), OMQ_VERSION);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(null_is_an_argument_like_any_other),
        cmocka_unit_test(questions_without_sense_are_refused),
        cmocka_unit_test(requests_without_sense_are_refused),
        cmocka_unit_test(a_call_that_nobody_waits_for_ends_with_its_client),
        cmocka_unit_test(options_without_sense_are_refused),
        cmocka_unit_test(a_closed_producer_says_so),
        cmocka_unit_test(a_closed_consumer_says_so),
        cmocka_unit_test(a_closed_reader_says_so),
        cmocka_unit_test(closed_ones_do_not_pile_up),
        cmocka_unit_test(callbacks_may_call_back),
        cmocka_unit_test(nothing_waits_on_the_working_thread),
        cmocka_unit_test(a_transaction_needs_somebody_to_ask),
        cmocka_unit_test(a_close_may_meet_sends),
        cmocka_unit_test(every_code_has_a_text),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
