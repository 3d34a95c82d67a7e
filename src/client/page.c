/* page.c - a web page that lists the name servers (names_url).
 *
 * It is read by a thread of its own, because resolvers and sockets of strangers may take their
 * time; the thread is detached and touches nothing but the page, which is gone with the second of
 * it and the asker. */
#include "client/client_int.h"

#include <errno.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#define PAGE_MAX   16384
#define PATIENCE_S 3

struct page {
    struct counted counted;
    atomic_bool done; /* what follows is the asker's from here on */
    enum err err;
    char reason[128];
    char host[HOST_TEXT_MAX], path[1024];
    uint16_t port;
    size_t len;
    char text[PAGE_MAX + 1];
};

/* ---- reading, on its own thread ---- */

static enum err page_fail(struct page *page, const char *what)
{
    (void)snprintf(page->reason, sizeof page->reason, "%s", what);
    return ERR_CLOSED;
}

static enum err page_connect(struct page *page, int *out)
{
    struct addr addr;
    struct fault fault = {0};
    if (address_of_host(page->host, page->port, &addr, &fault))
        return page_fail(page, fault.text);
    struct sockaddr_storage to;
    socklen_t size = addr_to_sockaddr(&addr, &to);
    int fd = socket(to.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return page_fail(page, strerrordesc_np(errno));
    struct timeval patience = {.tv_sec = PATIENCE_S};
    (void)setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    (void)setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof patience);
    if (connect(fd, (struct sockaddr *)&to, size) != 0) {
        enum err err = page_fail(page, strerrordesc_np(errno));
        (void)close(fd);
        return err;
    }
    *out = fd;
    return OK;
}

static enum err page_talk(struct page *page, int fd)
{
    char ask[sizeof page->host + sizeof page->path + 64];
    int n = snprintf(ask, sizeof ask, "GET %s HTTP/1.0\r\nHost: %s\r\nConnection: close\r\n\r\n",
                     page->path, page->host);
    if (send(fd, ask, (size_t)n, MSG_NOSIGNAL) != n)
        return page_fail(page, "it does not take the question");
    ssize_t got;
    while ((got = recv(fd, page->text + page->len, PAGE_MAX - page->len, 0)) > 0) {
        page->len += (size_t)got;
        if (page->len == PAGE_MAX)
            return page_fail(page, "the page is too long");
    }
    return got < 0 ? page_fail(page, "no answer in time") : OK;
}

bool page_cut(char *text)
{
    const char *body = strstr(text, "\r\n\r\n");
    if (!body || body - text < 12 || strncmp(text, "HTTP/1.", 7) != 0 ||
        strncmp(text + 8, " 200", 4) != 0)
        return false;
    body += 4;
    memmove(text, body, strlen(body) + 1);
    for (char *at = text; *at; at++)
        if (*at == '\r' || *at == '\n' || *at == '\t' || *at == ',')
            *at = ';';
    return true;
}

static void *page_run(void *arg)
{
    struct page *page = arg;
    int fd = -1;
    enum err err = page_connect(page, &fd);
    if (!err)
        err = page_talk(page, fd);
    page->text[page->len] = 0;
    if (!err && !page_cut(page->text))
        err = page_fail(page, "it does not answer with a page (HTTP 200)");
    if (fd >= 0)
        (void)close(fd);
    page->err = err;
    atomic_store(&page->done, true);
    counted_drop(&page->counted);
    return NULL;
}

/* ---- for the asker ---- */

static void page_free(struct counted *counted)
{
    free(list_entry(counted, struct page, counted));
}

/* http://host[:port][/path] */
static bool url_split(struct page *page, const char *url)
{
    static const char scheme[] = "http://";
    if (strncmp(url, scheme, sizeof scheme - 1) != 0)
        return false;
    const char *host = url + sizeof scheme - 1;
    size_t len = strcspn(host, ":/");
    const char *rest = host + len;
    int32_t port = 80;
    if (*rest == ':') {
        size_t digits = strcspn(rest + 1, "/");
        if (!bytes_to_i32(bytes_of(rest + 1, digits), &port))
            return false;
        rest += 1 + digits;
    }
    if (len == 0 || len >= sizeof page->host || port < 1 || port > 65535 ||
        strlen(rest) >= sizeof page->path || strpbrk(url, " \r\n"))
        return false;
    memcpy(page->host, host, len);
    page->port = (uint16_t)port;
    (void)snprintf(page->path, sizeof page->path, "%s", *rest ? rest : "/");
    return true;
}

bool page_url_good(const char *url)
{
    struct page page = {0};
    return url_split(&page, url);
}

struct page *page_start(const char *url)
{
    struct page *page = calloc(1, sizeof *page);
    if (!page || !url_split(page, url)) {
        free(page);
        return NULL;
    }
    counted_init(&page->counted, page_free);
    counted_hold(&page->counted); /* the thread's */
    pthread_t thread;
    if (thread_start(&thread, page_run, page)) {
        free(page);
        return NULL;
    }
    (void)pthread_detach(thread);
    return page;
}

bool page_done(struct page *page)
{
    return atomic_load(&page->done);
}

enum err page_result(const struct page *page, const char **text)
{
    *text = page->err ? page->reason : page->text;
    return page->err;
}

void page_close(struct page *page)
{
    if (page)
        counted_drop(&page->counted);
}
