/* serve.c - what servers ask of us. */
#include "client/consumer_int.h"
#include "client/producer_int.h"

void serve(const struct asked *asked)
{
    switch (asked->head->code) {
    case REQ_NOTIFY_CONSUMER_IDS_CHANGED:
        consumers_changed(asked->client, head_field(asked->head, BYTES("consumerGroup")));
        break;
    case REQ_CHECK_TRANSACTION_STATE:
        serve_check(asked);
        break;
    case REQ_PUSH_REPLY_MESSAGE_TO_CLIENT:
        serve_reply(asked);
        break;
    case REQ_RESET_CONSUMER_CLIENT_OFFSET:
        serve_reset(asked);
        break;
    case REQ_GET_CONSUMER_STATUS_FROM_CLIENT:
        serve_status(asked);
        break;
    case REQ_GET_CONSUMER_RUNNING_INFO:
        serve_running_info(asked);
        break;
    case REQ_CONSUME_MESSAGE_DIRECTLY:
        serve_directly(asked);
        break;
    default:
        asked_answer(asked, RES_REQUEST_CODE_NOT_SUPPORTED,
                     BYTES("this client does not know the request"), (struct bytes){0});
        break;
    }
}
