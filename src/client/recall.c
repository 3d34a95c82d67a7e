/* recall.c - taking back a message that is to be delivered later.
 *
 * The handle in its receipt is base64url of "v1 topic broker time id": it says which broker has it.
 */
#include "base/base64.h"
#include "client/producer_int.h"

/* The n-th word, from 0. */
static struct bytes word(struct bytes text, size_t n)
{
    for (;; n--) {
        const uint8_t *blank = text.len > 0 ? memchr(text.at, ' ', text.len) : NULL;
        size_t len = blank ? (size_t)(blank - text.at) : text.len;
        if (n == 0)
            return bytes_of(text.at, len);
        if (!blank)
            return (struct bytes){0};
        text = bytes_from(text, len + 1);
    }
}

static int nothing_to_take(struct question *question, const struct answer *answer)
{
    (void)question;
    (void)answer;
    return OMQ_OK;
}

bool recall_read(struct bytes text, struct bytes topic, uint8_t room[RECALL_MAX],
                 struct bytes *broker)
{
    size_t n;
    if (text.len > RECALL_MAX || !base64_read(BASE64_URL, text, room, &n))
        return false;
    struct bytes handle = bytes_of(room, n);
    *broker = word(handle, 2);
    return bytes_equal(word(handle, 0), BYTES("v1")) && bytes_equal(word(handle, 1), topic) &&
           broker->len > 0 && word(handle, 4).len > 0;
}

int omq_recall(struct omq_producer *producer, const char *topic, const char *recall,
               struct omq_error *why)
{
    int code = producer_check(producer, true, why);
    if (code)
        return code;
    if (!topic || !recall)
        return omq_fail(why, OMQ_INVALID, "a recall needs the topic and the receipt's `recall`");
    uint8_t room[RECALL_MAX];
    struct bytes broker;
    if (!recall_read(bytes_str(recall), bytes_str(topic), room, &broker))
        return omq_fail(why, OMQ_INVALID,
                        "that is not a `recall` of a receipt of topic %.100s (it is empty when the "
                        "message was not delayed by delay_ms or deliver_ms)",
                        topic);
    struct question question = {
        .client = producer->client,
        .request = REQ_RECALL_MESSAGE,
        .topic = bytes_str(topic),
        .broker = broker,
        .fields = {{BYTES("producerGroup"), bytes_str(producer->group)},
                   {BYTES("topic"), bytes_str(topic)},
                   {BYTES("recallHandle"), bytes_str(recall)}},
        .n_fields = 3,
        .timeout_ms = (uint64_t)producer->options.timeout_ms,
        .got = nothing_to_take,
    };
    code = question_ask(&question, why);
    if (code == OMQ_NO_TOPIC) { /* made by this message: it is where the template is */
        struct omq_error none = question.why;
        question.topic = TEMPLATE_TOPIC;
        code = question_ask(&question, why);
        if (code == OMQ_NO_TOPIC && why)
            *why = none;
    }
    if (code == OMQ_REFUSED && question.why.response_code == RES_ILLEGAL_OPERATION) {
        code = OMQ_NOT_FOUND; /* its time has come */
        if (why)
            why->code = code;
    }
    return code;
}
