/* serve.c - what servers ask of us. */
#include "client/client_int.h"

void serve(const struct asked *asked)
{
    asked_answer(asked, RES_REQUEST_CODE_NOT_SUPPORTED,
                 BYTES("this client does not know the request"), (struct bytes){0});
}
