/* http.c - a request for each message, with libcurl.
 *
 * libcurl and all that it needs is loaded when this worker is wanted and not before: a command that
 * talks to brokers only shall not wait for it. Each thread keeps one handle, and with it its
 * connection.
 *
 * What a stranger wrote goes into headers with %XX for all that is no plain character (and for %),
 * so no value can end its line. */
#include "sidecar/sidecar_int.h"

#include <curl/curl.h>
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

#define HEADERS_MAX 512
#define SAID_MAX    160 /* what is kept of an answer's body, for people */

struct curl {
    void *library;
    CURLcode (*global_init)(long flags);
    CURL *(*easy_init)(void);
    CURLcode (*setopt)(CURL *easy, CURLoption option, ...);
    CURLcode (*getinfo)(CURL *easy, CURLINFO info, ...);
    CURLcode (*perform)(CURL *easy);
    void (*easy_cleanup)(CURL *easy);
    const char *(*strerror)(CURLcode code);
    struct curl_slist *(*append)(struct curl_slist *list, const char *text);
    void (*free_all)(struct curl_slist *list);
};

struct http_hand {
    struct sidecar *sidecar;
    const struct curl *curl;
    CURL *easy;
    struct buf line;
    char said[SAID_MAX + 1];
    size_t n_said;
    bool asked; /* the request was made */
    char error[CURL_ERROR_SIZE];
};

/* ---- loading ---- */

static enum err curl_find(struct curl *c, struct fault *why)
{
    const struct {
        const char *name;
        void *at;
    } all[] = {
        {"curl_global_init", &c->global_init}, {"curl_easy_init", &c->easy_init},
        {"curl_easy_setopt", &c->setopt},      {"curl_easy_getinfo", &c->getinfo},
        {"curl_easy_perform", &c->perform},    {"curl_easy_cleanup", &c->easy_cleanup},
        {"curl_easy_strerror", &c->strerror},  {"curl_slist_append", &c->append},
        {"curl_slist_free_all", &c->free_all},
    };
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        void *found = dlsym(c->library, all[i].name);
        if (!found)
            return fault_set(why, ERR_UNSUPPORTED, "libcurl has no %s", all[i].name);
        memcpy(all[i].at, &found, sizeof found);
    }
    return OK;
}

static enum err http_open(struct sidecar *s, struct fault *why)
{
    const char *url = s->with.url ? s->with.url : "";
    if (strncmp(url, "http://", 7) != 0 && strncmp(url, "https://", 8) != 0)
        return fault_set(why, ERR_INVALID, "%.100s: the address begins with http:// or https://",
                         url);
    if (!s->with.content_type)
        s->with.content_type = "application/octet-stream";
    for (const char *c = s->with.content_type; *c; c++)
        if (*c < ' ' || *c > '~')
            return fault_set(why, ERR_INVALID, "the content type has an odd character");
    struct curl *c = calloc(1, sizeof *c);
    if (!c)
        return ERR_NO_MEMORY;
    s->state = c;
    c->library = dlopen("libcurl.so.4", RTLD_NOW | RTLD_LOCAL);
    if (!c->library)
        return fault_set(why, ERR_UNSUPPORTED,
                         "libcurl cannot be loaded (Debian: apt install libcurl4): %s", dlerror());
    enum err err = curl_find(c, why);
    if (!err && c->global_init(CURL_GLOBAL_DEFAULT) != CURLE_OK)
        err = fault_set(why, ERR_UNSUPPORTED, "libcurl cannot be started");
    return err;
}

/* The library stays: it has threads and atexit functions of its own. */
static void http_close(struct sidecar *s)
{
    free(s->state);
}

static void http_kill(struct sidecar *s, int signal)
{
    (void)s;
    (void)signal; /* hands look at `ending` while they wait: progress() */
}

/* ---- one request ---- */

static size_t said(char *at, size_t size, size_t n, void *user)
{
    struct http_hand *hand = user;
    for (size_t i = 0; i < size * n && hand->n_said < SAID_MAX; i++)
        hand->said[hand->n_said++] = at[i] >= ' ' && at[i] < 127 ? at[i] : ' ';
    return size * n;
}

static int progress(void *user, curl_off_t a, curl_off_t b, curl_off_t c, curl_off_t d)
{
    (void)a, (void)b, (void)c, (void)d;
    const struct http_hand *hand = user;
    return atomic_load(&hand->sidecar->ending);
}

/* Before each request that libcurl makes. When a connection that was used before breaks without an
 * answer it makes the same one again by itself; but the first may have been done. */
static int request_begins(void *user, char *ip, char *local_ip, int port, int local_port)
{
    (void)ip, (void)local_ip, (void)port, (void)local_port;
    struct http_hand *hand = user;
    int verdict = hand->asked ? CURL_PREREQFUNC_ABORT : CURL_PREREQFUNC_OK;
    hand->asked = true;
    return verdict;
}

static enum err http_hand_open(struct sidecar *s, size_t number, void **out, struct fault *why)
{
    (void)number;
    struct curl *c = s->state;
    struct http_hand *hand = calloc(1, sizeof *hand);
    CURL *easy = hand ? c->easy_init() : NULL;
    if (!easy) {
        free(hand);
        return fault_set(why, ERR_NO_MEMORY, "no memory for a request");
    }
    *hand = (struct http_hand){.sidecar = s, .curl = c, .easy = easy, .line = buf_upto(1 << 20)};
    CURLcode bad = c->setopt(easy, CURLOPT_URL, s->with.url);
    if (!bad)
        bad = c->setopt(easy, CURLOPT_PROTOCOLS_STR, "http,https");
    if (bad) {
        c->easy_cleanup(easy);
        free(hand);
        return fault_set(why, ERR_INVALID, "%.100s: %s", s->with.url, c->strerror(bad));
    }
    (void)c->setopt(easy, CURLOPT_NOSIGNAL, 1L);
    (void)c->setopt(easy, CURLOPT_POST, 1L);
    (void)c->setopt(easy, CURLOPT_TIMEOUT_MS, (long)s->with.timeout_ms);
    (void)c->setopt(easy, CURLOPT_FOLLOWLOCATION, 0L);
    (void)c->setopt(easy, CURLOPT_USERAGENT, "oncemq/" OMQ_VERSION);
    (void)c->setopt(easy, CURLOPT_WRITEFUNCTION, said);
    (void)c->setopt(easy, CURLOPT_WRITEDATA, hand);
    (void)c->setopt(easy, CURLOPT_ERRORBUFFER, hand->error);
    (void)c->setopt(easy, CURLOPT_XFERINFOFUNCTION, progress);
    (void)c->setopt(easy, CURLOPT_XFERINFODATA, hand);
    (void)c->setopt(easy, CURLOPT_NOPROGRESS, 0L);
    (void)c->setopt(easy, CURLOPT_PREREQFUNCTION, request_begins);
    (void)c->setopt(easy, CURLOPT_PREREQDATA, hand);
    *out = hand;
    return OK;
}

static void http_hand_close(void *own)
{
    struct http_hand *hand = own;
    hand->curl->easy_cleanup(hand->easy);
    buf_clear(&hand->line);
    free(hand);
}

/* ---- headers ---- */

struct headers {
    struct http_hand *hand;
    struct curl_slist *list;
    size_t n;
    bool failed;
};

static void value_add(struct buf *line, struct bytes value)
{
    for (size_t i = 0; i < value.len; i++) {
        uint8_t c = value.at[i];
        if (c > ' ' && c < 127 && c != '%')
            buf_add_u8(line, c);
        else
            buf_printf(line, "%%%02X", c);
    }
}

static void line_add(struct headers *h)
{
    struct buf *line = &h->hand->line;
    buf_add_u8(line, 0);
    struct curl_slist *more =
        line->err ? NULL : h->hand->curl->append(h->list, (const char *)line->at);
    if (more)
        h->list = more;
    h->failed |= !more;
}

static void header(struct headers *h, const char *name, struct bytes value)
{
    struct buf *line = &h->hand->line;
    line->len = 0;
    buf_add_str(line, name);
    if (value.len == 0) { /* with a ; libcurl sends it without a value; else not at all */
        buf_add_u8(line, ';');
    } else {
        buf_add_str(line, ": ");
        value_add(line, value);
    }
    line_add(h);
}

/* The user's own, as it was said: "text/plain; charset=utf-8" has a blank. http_open looked at it.
 */
static void content_type(struct headers *h)
{
    struct buf *line = &h->hand->line;
    line->len = 0;
    buf_add_str(line, "Content-Type: ");
    buf_add_str(line, h->hand->sidecar->with.content_type);
    line_add(h);
}

static void number(struct headers *h, const char *name, int64_t value)
{
    char text[24];
    int n = snprintf(text, sizeof text, "%lld", (long long)value);
    header(h, name, bytes_of(text, (size_t)n));
}

static void property(struct headers *h, const struct omq_property *p)
{
    char name[128] = "X-OnceMQ-Prop-";
    size_t n = strlen(name);
    if (h->n++ >= HEADERS_MAX)
        return;
    for (const char *c = p->name; *c && n + 1 < sizeof name; c++)
        name[n++] = (*c >= 'a' && *c <= 'z') || (*c >= 'A' && *c <= 'Z') ||
                            (*c >= '0' && *c <= '9') || *c == '_'
                        ? *c
                        : '-';
    name[n] = 0;
    header(h, name, bytes_str(p->value));
}

static void headers_fill(struct headers *h, const struct job *job)
{
    const struct omq_delivery *d = job->d;
    header(h, "Idempotency-Key", bytes_of(once_run_key(job->run), once_run_key_size(job->run)));
    content_type(h);
    header(h, "X-OnceMQ-Id", bytes_str(d->id));
    header(h, "X-OnceMQ-Topic", bytes_str(d->queue.topic));
    header(h, "X-OnceMQ-Tag", bytes_str(d->tag));
    header(h, "X-OnceMQ-Keys", bytes_str(d->keys));
    header(h, "X-OnceMQ-Broker", bytes_str(d->queue.broker));
    number(h, "X-OnceMQ-Queue", d->queue.id);
    number(h, "X-OnceMQ-Offset", d->offset);
    number(h, "X-OnceMQ-Attempt", d->attempt);
    number(h, "X-OnceMQ-Fence", once_run_fence(job->run));
    number(h, "X-OnceMQ-Born-Ms", d->born_ms);
    for (size_t i = 0; i < d->n_properties; i++)
        property(h, &d->properties[i]);
    h->list = h->failed ? h->list : h->hand->curl->append(h->list, "Expect:"); /* no asking first */
}

/* ---- answers ---- */

static void fate_of_status(struct http_hand *hand, struct fate *fate)
{
    long status = 0;
    curl_off_t seconds = 0;
    (void)hand->curl->getinfo(hand->easy, CURLINFO_RESPONSE_CODE, &status);
    (void)hand->curl->getinfo(hand->easy, CURLINFO_RETRY_AFTER, &seconds);
    hand->said[hand->n_said] = 0;
    if (status >= 200 && status < 300)
        fate_set(fate, SIDECAR_DONE, 0, "%s", "");
    else if (status == 409)
        fate_set(fate, SIDECAR_ALREADY, 0, "status 409");
    else if (status == 429 || status == 503)
        fate_set(fate, SIDECAR_LATER,
                 seconds > 0 && seconds < 3600 ? seconds * 1000
                 : seconds > 0                 ? 3600000
                                               : -1,
                 "status %ld", status);
    else
        fate_set(fate, SIDECAR_FAILED, 0, "status %ld: %s", status, hand->said);
}

/* A request that never left (no address, no connection, no certificate) surely did nothing. That is
 * nothing the message can help, so it keeps its attempts. */
static void fate_of_error(struct http_hand *hand, CURLcode bad, struct fate *fate)
{
    const char *why = hand->error[0] ? hand->error : hand->curl->strerror(bad);
    if (hand->asked) {
        if (bad == CURLE_ABORTED_BY_CALLBACK)
            why = "the connection was closed without an answer";
        fate_set(fate, SIDECAR_FAILED, 0, "%s", why);
        return;
    }
    fate_set(fate, SIDECAR_LATER, -1, "%s", why);
    sidecar_log(hand->sidecar, SIDECAR_ERROR, "no request: %s", why);
}

static void http_work(struct sidecar *s, void *own, struct job *job, struct fate *fate)
{
    struct http_hand *hand = own;
    const struct curl *c = hand->curl;
    struct headers h = {.hand = hand};
    headers_fill(&h, job);
    if (h.failed || !h.list) {
        c->free_all(h.list);
        fate_set(fate, SIDECAR_LATER, -1, "no memory for a request");
        return;
    }
    hand->n_said = 0;
    hand->asked = false;
    hand->error[0] = 0;
    (void)c->setopt(hand->easy, CURLOPT_HTTPHEADER, h.list);
    (void)c->setopt(hand->easy, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)job->d->body_size);
    (void)c->setopt(hand->easy, CURLOPT_POSTFIELDS, job->d->body_size ? job->d->body : "");
    CURLcode bad = c->perform(hand->easy);
    (void)c->setopt(hand->easy, CURLOPT_HTTPHEADER, NULL);
    c->free_all(h.list);
    if (!bad)
        fate_of_status(hand, fate);
    else if (atomic_load(&s->ending))
        fate_set(fate, SIDECAR_LATER, 0, "ended by our stop");
    else
        fate_of_error(hand, bad, fate);
}

const struct worker worker_http = {
    .open = http_open,
    .close = http_close,
    .kill = http_kill,
    .hand_open = http_hand_open,
    .hand_close = http_hand_close,
    .work = http_work,
};
