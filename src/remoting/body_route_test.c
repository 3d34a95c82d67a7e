/* body_route_test.c - routes and clusters, against what an Apache name server answered. */
#include "remoting/body_test.h"

static enum err read_it(struct bytes body, struct arena *arena)
{
    struct route r;
    return route_read(body, arena, &r);
}

/* Read and written again: the same bytes. */
static void writes_what_an_apache_name_server_writes(void **state)
{
    struct desk *d = *state;
    const char *names[] = {"get_routeinfo_response", "get_routeinfo_binary_response"};
    for (size_t i = 0; i < 2; i++) {
        struct bytes frame = vector_load(names[i]);
        struct route r;
        assert_int_equal(route_read(vector_body(frame), &d->arena, &r), OK);
        assert_int_equal(r.n_brokers, 1);
        assert_bytes_equal(r.brokers[0].name, BYTES("broker-a"));
        assert_bytes_equal(r.brokers[0].cluster, BYTES("DefaultCluster"));
        assert_int_equal(r.brokers[0].n_addrs, 1);
        assert_int_equal(r.brokers[0].addrs[0].id, 0);
        assert_bytes_equal(r.brokers[0].addrs[0].addr, BYTES("127.0.0.1:10911"));
        assert_int_equal(r.n_queues, 1);
        assert_int_equal(r.queues[0].perm, 7);
        assert_int_equal(r.queues[0].read_queues, 8);
        assert_null(r.order_conf.at);

        buf_clear(&d->out);
        route_write(&d->out, &r, true);
        assert_bytes_equal(buf_bytes(&d->out), vector_body(frame));
        vector_free(frame);
    }
}

static struct route sample(void)
{
    static struct route_addr addrs[] = {{0, {(const uint8_t *)"1.2.3.4:10911", 13}},
                                        {1, {(const uint8_t *)"[::1]:10921", 11}}};
    static struct route_broker brokers[2];
    static struct route_queues queues[1];
    brokers[0] = (struct route_broker){.name = BYTES("b-a"),
                                       .cluster = BYTES("C"),
                                       .zone = BYTES("z"),
                                       .acting_master = true,
                                       .addrs = addrs,
                                       .n_addrs = 2};
    brokers[1] = (struct route_broker){.name = BYTES("b-b"), .cluster = BYTES("C")};
    queues[0] = (struct route_queues){
        .broker_name = BYTES("b-a"), .read_queues = 4, .write_queues = 3, .perm = 6, .sys_flag = 1};
    return (struct route){.brokers = brokers,
                          .n_brokers = 2,
                          .queues = queues,
                          .n_queues = 1,
                          .order_conf = BYTES("b-a:4")};
}

/* The Go client takes brokerAddrs apart as text: not one blank in it. */
static void writes_keys_with_and_without_quotes(void **state)
{
    struct desk *d = *state;
    struct route r = sample();
    route_write(&d->out, &r, false);
    assert_bytes_equal(
        buf_bytes(&d->out),
        BYTES("{\"brokerDatas\":[{\"brokerAddrs\":{0:\"1.2.3.4:10911\",1:\"[::1]:10921\"},"
              "\"brokerName\":\"b-a\",\"cluster\":\"C\",\"enableActingMaster\":true,"
              "\"zoneName\":\"z\"},{\"brokerAddrs\":{},\"brokerName\":\"b-b\",\"cluster\":\"C\","
              "\"enableActingMaster\":false}],\"filterServerTable\":{},"
              "\"orderTopicConf\":\"b-a:4\",\"queueDatas\":[{\"brokerName\":\"b-a\",\"perm\":6,"
              "\"readQueueNums\":4,\"topicSysFlag\":1,\"writeQueueNums\":3}]}"));
    buf_clear(&d->out);
    route_write(&d->out, &r, true);
    assert_non_null(memmem(d->out.at, d->out.len, "{\"0\":\"1.2.3.4:10911\",\"1\":", 25));
}

static void goes_both_ways(void **state)
{
    struct desk *d = *state;
    for (int quoted = 0; quoted < 2; quoted++) {
        struct route r = sample(), again;
        buf_clear(&d->out);
        route_write(&d->out, &r, quoted);
        assert_int_equal(route_read(buf_bytes(&d->out), &d->arena, &again), OK);
        assert_int_equal(again.n_brokers, 2);
        assert_int_equal(again.brokers[0].n_addrs, 2);
        assert_int_equal(again.brokers[0].addrs[1].id, 1);
        assert_bytes_equal(again.brokers[0].addrs[1].addr, r.brokers[0].addrs[1].addr);
        assert_bytes_equal(again.brokers[0].zone, BYTES("z"));
        assert_true(again.brokers[0].acting_master);
        assert_int_equal(again.brokers[1].n_addrs, 0);
        assert_int_equal(again.queues[0].sys_flag, 1);
        assert_bytes_equal(again.order_conf, r.order_conf);

        struct buf twice = buf_upto(1 << 20);
        route_write(&twice, &again, quoted);
        assert_bytes_equal(buf_bytes(&twice), buf_bytes(&d->out));
        buf_clear(&twice);
    }
}

static void reads_old_and_empty_routes(void **state)
{
    struct desk *d = *state;
    struct route r;
    assert_int_equal(route_read(BYTES("{}"), &d->arena, &r), OK);
    assert_int_equal(r.n_brokers + r.n_queues, 0);
    struct bytes old = BYTES("{\"queueDatas\":[{\"brokerName\":\"b\",\"topicSynFlag\":3}]}");
    assert_int_equal(route_read(old, &d->arena, &r), OK);
    assert_int_equal(r.queues[0].sys_flag, 3);
}

static void refuses_what_makes_no_sense(void **state)
{
    struct desk *d = *state;
    static const char *const bad[] = {
        "",
        "[]",
        "{\"brokerDatas\":{}}",
        "{\"brokerDatas\":[1]}",
        "{\"brokerDatas\":[{}]}",
        "{\"brokerDatas\":[{\"brokerName\":\"b\"}]}",
        "{\"brokerDatas\":[{\"brokerName\":\"b\",\"brokerAddrs\":[]}]}",
        "{\"brokerDatas\":[{\"brokerName\":\"b\",\"brokerAddrs\":{\"x\":\"1.2.3.4:5\"}}]}",
        "{\"brokerDatas\":[{\"brokerName\":\"b\",\"brokerAddrs\":{0:\"\"}}]}",
        "{\"brokerDatas\":[{\"brokerName\":\"b\",\"brokerAddrs\":{{}:\"a:1\"}}]}",
        "{\"queueDatas\":[{}]}",
        "{\"queueDatas\":5}",
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        assert_int_equal(read_it(bytes_str(bad[i]), &d->arena), ERR_MALFORMED);
}

static void writes_clusters_as_apache_does(void **state)
{
    struct desk *d = *state;
    struct bytes frame = vector_load("get_broker_cluster_info_response");
    struct route_addr addr = {0, BYTES("127.0.0.1:10911")};
    struct route_broker broker = {.name = BYTES("broker-a"),
                                  .cluster = BYTES("DefaultCluster"),
                                  .addrs = &addr,
                                  .n_addrs = 1};
    struct bytes name = BYTES("broker-a");
    struct cluster_names cluster = {BYTES("DefaultCluster"), &name, 1};
    cluster_info_write(&d->out, &broker, 1, &cluster, 1);
    assert_bytes_equal(buf_bytes(&d->out), vector_body(frame));
    vector_free(frame);

    buf_clear(&d->out);
    cluster_info_write(&d->out, NULL, 0, NULL, 0);
    assert_bytes_equal(buf_bytes(&d->out),
                       BYTES("{\"brokerAddrTable\":{},\"clusterAddrTable\":{}}"));
    buf_clear(&d->out);
    member_group_write(&d->out, &broker);
    assert_bytes_equal(buf_bytes(&d->out),
                       BYTES("{\"brokerMemberGroup\":{\"brokerAddrs\":{0:\"127.0.0.1:10911\"},"
                             "\"brokerName\":\"broker-a\",\"cluster\":\"DefaultCluster\"}}"));
}

static void keeps_the_laws(void **state)
{
    struct desk *d = *state;
    struct bytes frame = vector_load("get_routeinfo_response");
    refuses_prefixes(vector_body(frame), read_it, &d->arena);
    survives_changes(vector_body(frame), read_it, &d->arena);
    bounded_by_the_arena(vector_body(frame), read_it);
    vector_free(frame);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(writes_what_an_apache_name_server_writes),
        CASE(writes_keys_with_and_without_quotes),
        CASE(goes_both_ways),
        CASE(reads_old_and_empty_routes),
        CASE(refuses_what_makes_no_sense),
        CASE(writes_clusters_as_apache_does),
        CASE(keeps_the_laws),
    };
    return cmocka_run_group_tests_name("remoting/body_route", tests, NULL, NULL);
}
