/* http_none.c - in place of http.c where libcurl's headers were not there. */
#include "sidecar/sidecar_int.h"

static enum err none_open(struct sidecar *s, struct fault *why)
{
    (void)s;
    return fault_set(why, ERR_UNSUPPORTED,
                     "this build knows no HTTP: libcurl's headers were not there (Debian: "
                     "libcurl4-openssl-dev)");
}

static void none_close(struct sidecar *s)
{
    (void)s;
}

const struct worker worker_http = {.open = none_open, .close = none_close};
