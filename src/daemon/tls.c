/* tls.c - TLS of the house: what its ports offer, and what it speaks with name servers.
 *
 * Certificates are read when the house opens and again on SIGHUP, from the same files: whoever is
 * connected goes on with the old one, whoever comes gets the new one. When the new files are no
 * good the old ones stay, and the log says why.
 */
#include "daemon/house_int.h"

#include <signal.h>
#include <stdlib.h>

static const char *path_of(const char *setting)
{
    return setting[0] ? setting : NULL;
}

static enum err open_offered(const struct settings *s, struct tls **out, struct fault *why)
{
    const enum tls_ask asks[] = {TLS_ASK_NOT, TLS_ASK, TLS_DEMAND}; /* as tls_asks in settings.c */
    struct tls_options options = {
        .made_up = s->tls_test,
        .cert = path_of(s->tls_cert),
        .key = path_of(s->tls_key),
        .ca = path_of(s->tls_trust),
        .trust_all = !s->tls_auth_client,
        .ask = asks[s->tls_client_auth],
    };
    enum err err = tls_open_server(&options, out, why);
    return err ? fault_add(why, err, "tls.server.certPath and its relatives") : OK;
}

static enum err open_spoken(const struct settings *s, struct tls **out, struct fault *why)
{
    struct tls_options options = {
        .cert = path_of(s->tls_own_cert),
        .key = path_of(s->tls_own_key),
        .ca = path_of(s->tls_own_trust),
        .trust_all = !s->tls_auth_server,
    };
    enum err err = tls_open_client(&options, out, why);
    return err ? fault_add(why, err, "tls.client.certPath and its relatives") : OK;
}

/* Loop: loops[0], or before the threads run. */
static void offer(struct house *h, struct tls *tls)
{
    bool enforcing = h->options.settings->tls_mode == TLS_ENFORCING;
    if (h->names_listener)
        listener_secure(h->names_listener, tls, enforcing);
    if (h->broker_listener)
        listener_secure(h->broker_listener, tls, enforcing);
}

enum err house_open_tls(struct house *h, struct fault *why)
{
    const struct settings *s = h->options.settings;
    if (s->tls_mode == TLS_ENFORCING && h->options.names && h->options.broker && !s->tls_enable)
        return fault_set(why, ERR_INVALID,
                         "tls.server.mode=enforcing would refuse this broker at the name server in "
                         "its own process: set tls.enable=true as well");
    enum err err = s->tls_enable ? open_spoken(s, &h->tls_spoken, why) : OK;
    if (err || !settings_offer_tls(s))
        return err;
    struct tls *tls;
    err = open_offered(s, &tls, why);
    if (err)
        return err;
    offer(h, tls);
    tls_close(tls);
    if (s->tls_test)
        log_event(&h->log, LOG_WARN,
                  "TLS with a made-up certificate advice=\"for tests only: set "
                  "tls.server.certPath and tls.test.mode.enable=false\"");
    return OK;
}

/* ---- SIGHUP ---- */

struct renewal {
    struct post post;
    struct house *house;
    struct tls *tls;
};

/* Loop: loops[0]. */
static void renew_here(struct post *post)
{
    struct renewal *renewal = list_entry(post, struct renewal, post);
    offer(renewal->house, renewal->tls);
    tls_close(renewal->tls);
    free(renewal);
}

/* Main loop. */
static void renew(void *user, int signum)
{
    struct house *h = user;
    (void)signum;
    if (!settings_offer_tls(h->options.settings) || h->options.settings->tls_test) {
        log_event(&h->log, LOG_INFO, "SIGHUP nothing to read again: no certificate is from a file");
        return;
    }
    struct fault why = {0};
    struct renewal *renewal = calloc(1, sizeof *renewal);
    enum err err = renewal ? open_offered(h->options.settings, &renewal->tls, &why)
                           : fault_set(&why, ERR_NO_MEMORY, "no memory");
    if (err) {
        log_event(&h->log, LOG_ERROR,
                  "certificate not renewed reason=%s action=\"the old one stays\"",
                  LOG_QUOTE(bytes_str(why.text)));
        free(renewal);
        return;
    }
    log_event(&h->log, LOG_INFO, "certificate renewed");
    renewal->house = h;
    renewal->post.run = renew_here;
    loop_post(h->loops[0], &renewal->post);
}

enum err house_watch_tls(struct house *h)
{
    return loop_on_signal(h->main_loop, SIGHUP, renew, h);
}
