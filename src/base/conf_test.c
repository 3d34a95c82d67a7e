/* Setting, refusing, reading a file as Java would, and showing everything again. */
#include "base/conf.h"
#include "base/test.h"

#include <stdio.h>

enum role { ASYNC_MASTER, SYNC_MASTER, SLAVE };

struct settings {
    int64_t port;
    int64_t size;
    bool create;
    char name[CONF_TEXT_MAX];
    char levels[CONF_TEXT_MAX];
    int role;
};

static enum err check_levels(const char *value, struct fault *why)
{
    if (strchr(value, 'x'))
        return fault_set(why, ERR_INVALID, "the unit must be s, m, h or d");
    return OK;
}

static const char *const roles[] = {"ASYNC_MASTER", "SYNC_MASTER", "SLAVE", NULL};

static const struct conf_option options[] = {
    {.key = "listenPort",
     .type = CONF_INT,
     .offset = offsetof(struct settings, port),
     .initial = "10911",
     .min = 0,
     .max = 65535,
     .help = "Where the broker listens."},
    {.key = "maxMessageSize",
     .type = CONF_INT,
     .offset = offsetof(struct settings, size),
     .initial = "4194304",
     .min = 1,
     .max = INT64_MAX,
     .help = "Bytes of a body.",
     .live = true},
    {.key = "autoCreateTopicEnable",
     .type = CONF_BOOL,
     .offset = offsetof(struct settings, create),
     .initial = "true",
     .help = "Make topics | by sending."},
    {.key = "brokerName",
     .type = CONF_TEXT,
     .offset = offsetof(struct settings, name),
     .initial = "",
     .help = "Its name."},
    {.key = "messageDelayLevel",
     .type = CONF_TEXT,
     .offset = offsetof(struct settings, levels),
     .initial = "1s 5s",
     .check = check_levels,
     .help = "How long each level waits."},
    {.key = "brokerRole",
     .type = CONF_CHOICE,
     .offset = offsetof(struct settings, role),
     .initial = "ASYNC_MASTER",
     .choices = roles,
     .help = "Master or slave."},
};
static const struct conf_table table = {options, sizeof options / sizeof options[0]};

static struct settings fresh(void)
{
    struct settings s = {0};
    assert_int_equal(conf_defaults(&table, &s, NULL), OK);
    return s;
}

static struct settings parsed(const char *text)
{
    struct settings s = fresh();
    struct fault why = {0};
    if (conf_parse(&table, &s, "t.conf", bytes_str(text), NULL, &why) != OK)
        print_error("%s\n", why.text);
    assert_string_equal(why.text, "");
    return s;
}

static bool same_settings(const struct settings *a, const struct settings *b)
{
    return a->port == b->port && a->size == b->size && a->create == b->create &&
           a->role == b->role && strcmp(a->name, b->name) == 0 && strcmp(a->levels, b->levels) == 0;
}

static void starts_with_the_defaults(void **state)
{
    (void)state;
    struct settings s = fresh();
    assert_int_equal(s.port, 10911);
    assert_int_equal(s.size, 4194304);
    assert_true(s.create);
    assert_string_equal(s.name, "");
    assert_string_equal(s.levels, "1s 5s");
    assert_int_equal(s.role, ASYNC_MASTER);
}

static void a_default_that_is_wrong_is_told(void **state)
{
    (void)state;
    struct conf_option bad = options[0];
    bad.initial = "70000";
    struct settings s = {0};
    struct fault why = {0};
    assert_int_equal(conf_defaults(&(struct conf_table){&bad, 1}, &s, &why), ERR_INVALID);
    assert_non_null(strstr(why.text, "default: listenPort=70000"));
}

static void sets_values_of_every_type(void **state)
{
    (void)state;
    struct settings s = fresh();
    assert_int_equal(conf_set(&table, &s, "--set", "listenPort", " 0 ", NULL), OK);
    assert_int_equal(conf_set(&table, &s, "--set", "maxMessageSize", "9223372036854775807", NULL),
                     OK);
    assert_int_equal(conf_set(&table, &s, "--set", "autoCreateTopicEnable", "False", NULL), OK);
    assert_int_equal(conf_set(&table, &s, "--set", "brokerName", "b-1 \xc3\xa9", NULL), OK);
    assert_int_equal(conf_set(&table, &s, "--set", "brokerRole", "slave", NULL), OK);
    assert_int_equal(s.port, 0);
    assert_true(s.size == INT64_MAX);
    assert_false(s.create);
    assert_string_equal(s.name, "b-1 \xc3\xa9");
    assert_int_equal(s.role, SLAVE);
}

/* Each refusal names where, key, value and what would be valid, and leaves the setting alone. */
static void refuses_values_that_make_no_sense(void **state)
{
    (void)state;
    static const struct {
        const char *key, *value, *sentence;
    } cases[] = {
        {"listenPort", "65536",
         "b.conf:3: listenPort=65536 is not valid: it must be a whole number from 0 to 65535"},
        {"listenPort", "-1",
         "b.conf:3: listenPort=-1 is not valid: it must be a whole number from 0 to 65535"},
        {"listenPort", "",
         "b.conf:3: listenPort=\"\" is not valid: it must be a whole number from 0 to 65535"},
        {"listenPort", "80 a",
         "b.conf:3: listenPort=\"80 a\" is not valid: it must be a whole number from 0 to 65535"},
        {"listenPort", "0x50",
         "b.conf:3: listenPort=0x50 is not valid: it must be a whole number from 0 to 65535"},
        {"maxMessageSize", "0",
         "b.conf:3: maxMessageSize=0 is not valid: it must be a whole number, 1 or more"},
        {"maxMessageSize", "9223372036854775808",
         "b.conf:3: maxMessageSize=9223372036854775808 is not valid: it must be a whole number, 1 "
         "or more"},
        {"autoCreateTopicEnable", "yes",
         "b.conf:3: autoCreateTopicEnable=yes is not valid: it must be true or false"},
        {"brokerRole", "MASTER",
         "b.conf:3: brokerRole=MASTER is not valid: it must be ASYNC_MASTER, SYNC_MASTER or SLAVE"},
        {"messageDelayLevel", "5x",
         "b.conf:3: messageDelayLevel=5x is not valid: the unit must be s, m, h or d"},
    };
    const struct settings before = fresh();
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct settings s = before;
        struct fault why = {0};
        assert_int_equal(conf_set(&table, &s, "b.conf:3", cases[i].key, cases[i].value, &why),
                         ERR_INVALID);
        assert_string_equal(why.text, cases[i].sentence);
        assert_int_equal(conf_set(&table, &s, "b.conf:3", cases[i].key, cases[i].value, NULL),
                         ERR_INVALID);
        assert_true(same_settings(&s, &before));
    }
}

static void text_has_a_longest_form(void **state)
{
    (void)state;
    struct settings s = fresh();
    struct fault why = {0};
    char text[CONF_TEXT_MAX + 1];
    memset(text, 'a', sizeof text);
    text[CONF_TEXT_MAX] = '\0';
    assert_int_equal(conf_set(&table, &s, "--set", "brokerName", text, &why), ERR_INVALID);
    assert_non_null(strstr(why.text, "it must be text of at most 1023 bytes"));
    char line[CONF_TEXT_MAX + 32];
    snprintf(line, sizeof line, "\nbrokerName=%s", text);
    assert_int_equal(conf_parse(&table, &s, "t.conf", bytes_str(line), NULL, &why), ERR_INVALID);
    assert_string_equal(why.text, "t.conf:2: the value of brokerName is longer than 1023 bytes");
    text[CONF_TEXT_MAX - 1] = '\0';
    snprintf(line, sizeof line, "brokerName=%s", text);
    assert_int_equal(conf_parse(&table, &s, "t.conf", bytes_str(line), NULL, &why), OK);
    assert_string_equal(s.name, text);
}

static void suggests_the_key_that_was_meant(void **state)
{
    (void)state;
    assert_string_equal(conf_nearest(&table, "listenport"), "listenPort");
    assert_string_equal(conf_nearest(&table, "listnPort"), "listenPort");
    assert_string_equal(conf_nearest(&table, "lsitenPort"), "listenPort");
    assert_string_equal(conf_nearest(&table, "autoCreateTopicsEnabled"), "autoCreateTopicEnable");
    assert_null(conf_nearest(&table, "somethingElse"));
    assert_null(conf_nearest(&table, "port"));
    assert_null(conf_nearest(&table, ""));
    char text[200] = {0};
    memset(text, 'a', sizeof text - 1);
    assert_null(conf_nearest(&table, text));

    struct settings s = fresh();
    struct fault why = {0};
    assert_int_equal(conf_set(&table, &s, "--set", "brokername", "x", &why), ERR_NOT_FOUND);
    assert_string_equal(why.text, "--set: there is no key brokername; did you mean brokerName?");
    assert_int_equal(conf_set(&table, &s, "--set", "zz\n", "x", &why), ERR_NOT_FOUND);
    assert_string_equal(why.text, "--set: there is no key \"zz\\x0a\"");
}

static void note_unknown(void *user, const char *where, const char *key, const char *nearest)
{
    buf_printf(user, "%s %s %s;", where, key, nearest ? nearest : "-");
}

static void tells_of_unknown_keys_and_goes_on(void **state)
{
    (void)state;
    struct settings s = fresh();
    cleanup(buf_clear) struct buf told = buf_upto(4096);
    struct conf_unknown unknown = {note_unknown, &told};
    const char *text =
        "# a comment\nbrokerNam=x\n\n! another = one\n  listenPort=1\nfastSendEnable=true\n"
        "listenPort=2";
    assert_int_equal(conf_parse(&table, &s, "b.conf", bytes_str(text), &unknown, NULL), OK);
    assert_int_equal(s.port, 2);
    assert_bytes_equal(buf_bytes(&told),
                       BYTES("b.conf:2 brokerNam brokerName;b.conf:6 fastSendEnable -;"));
}

static void names_file_and_line_of_a_wrong_value(void **state)
{
    (void)state;
    struct settings s = fresh();
    struct fault why = {0};
    const char *text = "brokerName=a\\\n   b\r\n\r# x\nlistenPort=none\n";
    assert_int_equal(conf_parse(&table, &s, "b.conf", bytes_str(text), NULL, &why), ERR_INVALID);
    assert_string_equal(
        why.text,
        "b.conf:5: listenPort=none is not valid: it must be a whole number from 0 to 65535");
}

/* Every form says brokerName = "a b" and listenPort = 7. */
static void reads_the_forms_that_java_reads(void **state)
{
    (void)state;
    static const char *const forms[] = {
        "brokerName=a b\nlistenPort=7\n",
        "brokerName=a b\r\nlistenPort=7\r\n",
        "brokerName=a b\rlistenPort=7",
        "  brokerName  =  a b  \n\tlistenPort\t=\t7\t\n",
        "brokerName: a b\nlistenPort:7",
        "brokerName a b\nlistenPort 7",
        "\xef\xbb\xbf\nbrokerName=a b\nlistenPort=7",
        "\xef\xbb\xbf  brokerName=a b\nlistenPort=7",
        "brokerName=a\\ b\nlistenPort=\\u0037",
        "brokerName=a \\\n    b\nlisten\\\r\n  Port=7",
        "broker\\Name=\\a\\u0020b\nlisten\\u0050ort=7",
        "brokerName=\\\n#a b\nbrokerName=a b\n#c \\\nlistenPort=7\n#",
    };
    for (size_t i = 0; i < sizeof forms / sizeof forms[0]; i++) {
        struct settings s = parsed(forms[i]);
        assert_string_equal(s.name, "a b");
        assert_int_equal(s.port, 7);
    }
}

static void unescapes_values(void **state)
{
    (void)state;
    static const struct {
        const char *text, *wanted;
    } cases[] = {
        {"brokerName=", ""},
        {"brokerName", ""},
        {"brokerName==", "="},
        {"brokerName=a=b:c", "a=b:c"},
        {"brokerName=127.0.0.1\\:9876;h\\=1", "127.0.0.1:9876;h=1"},
        {"brokerName=C\\:\\\\data\\\\", "C:\\data\\"},
        {"brokerName=\\t\\n\\r\\f\\q", "\t\n\r\fq"},
        {"brokerName=\\ a\\ ", " a "},
        {"brokerName=a\\", "a"},
        {"brokerName=\\u20ac\\ud83d\\ude00\\ud83d", "\xe2\x82\xac\xf0\x9f\x98\x80\xef\xbf\xbd"},
        {"brokerName=\xc3\xa9 \xe2\x82\xac", "\xc3\xa9 \xe2\x82\xac"},
        {"brokerName=a#b!c", "a#b!c"},
        {"=\n\\\n\nbrokerName=x", "x"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct settings s = parsed(cases[i].text);
        assert_string_equal(s.name, cases[i].wanted);
    }
}

static void refuses_what_is_no_text(void **state)
{
    (void)state;
    static const struct {
        struct bytes text;
        const char *sentence;
    } cases[] = {
        {{(const uint8_t *)"\n=x", 3}, "t:2: there is no key before the value"},
        {{(const uint8_t *)"a=\\u12", 6}, "t:1: \\u must be followed by four hexadecimal digits"},
        {{(const uint8_t *)"a=\\u12gg", 8}, "t:1: \\u must be followed by four hexadecimal digits"},
        {{(const uint8_t *)"a=\\u0000", 8}, "t:1: a zero byte is not text"},
        {{(const uint8_t *)"a=x\0y", 5}, "t:1: a zero byte is not text"},
        {{(const uint8_t *)"a=x\\\0y", 6}, "t:1: a zero byte is not text"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct settings s = fresh();
        struct fault why = {0};
        assert_int_equal(conf_parse(&table, &s, "t", cases[i].text, NULL, &why), ERR_INVALID);
        assert_string_equal(why.text, cases[i].sentence);
    }
    struct settings s = fresh();
    assert_int_equal(conf_parse(&table, &s, "t", (struct bytes){0}, NULL, NULL), OK);
}

/* Each prefix in its own exact allocation: any answer will do, a read too far will not. */
static void survives_every_prefix_and_every_change(void **state)
{
    (void)state;
    static const char text[] = "\xef\xbb\xbf# c\r\n listenPort : 7\\\n 1\n! "
                               "d\nbrokerName=\\u20ac\\ud83d\\ude00\\t\\\\ \\ \n"
                               "brokerRole SLAVE\rmessageDelayLevel=1s \\\r\n 2s\n\\";
    for (size_t cut = 0; cut < sizeof text; cut++) {
        cleanup(free_at) uint8_t *exact = test_copy(text, cut);
        struct settings s = fresh();
        (void)!conf_parse(&table, &s, "t", bytes_of(exact, cut), NULL, NULL);
    }
    for (size_t i = 0; i < (sizeof text - 1) * 256; i++) {
        cleanup(free_at) uint8_t *exact = test_copy(text, sizeof text - 1);
        exact[i / 256] = (uint8_t)i;
        struct settings s = {0};
        (void)!conf_parse(&table, &s, "t", bytes_of(exact, sizeof text - 1), NULL, NULL);
    }
}

static void prints_a_file_that_can_be_read_back(void **state)
{
    (void)state;
    struct settings s =
        parsed("brokerName=\\ C:\\\\x\\t\\n#!= \\u20ac\\ \nlistenPort=1\nbrokerRole=SLAVE\n"
               "autoCreateTopicEnable=false\nmaxMessageSize=9");
    cleanup(buf_clear) struct buf out = buf_upto(1 << 16);
    conf_print(&table, &s, &out);
    assert_int_equal(out.err, OK);
    struct settings again = fresh();
    assert_int_equal(conf_parse(&table, &again, "t", buf_bytes(&out), NULL, NULL), OK);
    assert_true(same_settings(&s, &again));

    assert_true(bytes_start(
        buf_bytes(&out), BYTES("# Where the broker listens.\n"
                               "# a whole number from 0 to 65535; default: 10911\n"
                               "listenPort=1\n"
                               "\n"
                               "# Bytes of a body.\n"
                               "# a whole number, 1 or more; default: 4194304; can change while it "
                               "runs\n"
                               "maxMessageSize=9\n")));
}

/* Any text without a zero byte comes back from print and parse. */
static void text_of_any_kind_comes_back(void **state)
{
    (void)state;
    struct dice d = test_dice();
    static const char likely[] = " \t\n\r\f\\=:#!u0a";
    for (int i = 0; i < 3000; i++) {
        struct settings s = fresh(), again = fresh();
        size_t len = dice_below(&d, 12);
        for (size_t j = 0; j < len; j++)
            s.name[j] = dice_below(&d, 4) ? likely[dice_below(&d, sizeof likely - 1)]
                                          : (char)(1 + dice_below(&d, 255));
        cleanup(buf_clear) struct buf out = buf_upto(1 << 16);
        conf_print(&table, &s, &out);
        assert_int_equal(conf_parse(&table, &again, "t", buf_bytes(&out), NULL, NULL), OK);
        assert_true(same_settings(&s, &again));
    }
}

static void note_pair(void *user, const char *key, const char *value)
{
    buf_printf(user, "[%s|%.8s]", key, value);
}

/* Also of keys that no table has; a long value is cut, a wrong line ends it with its number. */
static void tells_every_pair(void **state)
{
    (void)state;
    struct buf seen = buf_upto(1024);
    struct fault why = {0};
    assert_int_equal(
        conf_each("s", BYTES("# c\na = 1\nb\\=c:x y \n=lost\n\na=2"), note_pair, &seen, &why), OK);
    assert_memory_equal(seen.at, "[a|1][b=c|x y][a|2]", seen.len);
    seen.len = 0;
    char text[CONF_TEXT_MAX + 64] = "k=";
    memset(text + 2, 'v', sizeof text - 3);
    assert_int_equal(conf_each("s", bytes_str(text), note_pair, &seen, &why), OK);
    assert_memory_equal(seen.at, "[k|vvvvvvvv]", seen.len);
    assert_int_equal(conf_each("s", BYTES("a=1\nb=\\u12"), note_pair, &seen, &why), ERR_INVALID);
    assert_non_null(strstr(why.text, "s:2:"));
    buf_clear(&seen);
}

static void makes_a_markdown_table(void **state)
{
    (void)state;
    cleanup(buf_clear) struct buf out = buf_upto(1 << 16);
    conf_markdown(&table, &out);
    assert_bytes_equal(
        buf_bytes(&out),
        BYTES("| Key | Default | Valid | Live | Meaning |\n|---|---|---|---|---|\n"
              "| `listenPort` | `10911` | a whole number from 0 to 65535 |  | Where the broker "
              "listens. |\n"
              "| `maxMessageSize` | `4194304` | a whole number, 1 or more | yes | Bytes of a body. "
              "|\n"
              "| `autoCreateTopicEnable` | `true` | true or false |  | Make topics \\| by sending. "
              "|\n"
              "| `brokerName` |  | text |  | Its name. |\n"
              "| `messageDelayLevel` | `1s 5s` | text |  | How long each level waits. |\n"
              "| `brokerRole` | `ASYNC_MASTER` | ASYNC_MASTER, SYNC_MASTER or SLAVE |  | Master or "
              "slave. |\n"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(starts_with_the_defaults),
        cmocka_unit_test(a_default_that_is_wrong_is_told),
        cmocka_unit_test(sets_values_of_every_type),
        cmocka_unit_test(refuses_values_that_make_no_sense),
        cmocka_unit_test(text_has_a_longest_form),
        cmocka_unit_test(suggests_the_key_that_was_meant),
        cmocka_unit_test(tells_of_unknown_keys_and_goes_on),
        cmocka_unit_test(names_file_and_line_of_a_wrong_value),
        cmocka_unit_test(reads_the_forms_that_java_reads),
        cmocka_unit_test(unescapes_values),
        cmocka_unit_test(refuses_what_is_no_text),
        cmocka_unit_test(survives_every_prefix_and_every_change),
        cmocka_unit_test(prints_a_file_that_can_be_read_back),
        cmocka_unit_test(text_of_any_kind_comes_back),
        cmocka_unit_test(tells_every_pair),
        cmocka_unit_test(makes_a_markdown_table),
    };
    return cmocka_run_group_tests_name("conf", tests, NULL, NULL);
}
