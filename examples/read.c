/* Reads all that a topic has, queue by queue, from the beginning to where it ends now.
 *     read [name server [topic]] */
#include <oncemq.h>

#include <stdio.h>

static int read_queue(struct omq_client *client, struct omq_reader *reader,
                      const struct omq_queue *queue, struct omq_error *why)
{
    int64_t at, end;
    int code = omq_offset(client, queue, OMQ_BEGIN, &at, why);
    if (!code)
        code = omq_offset(client, queue, OMQ_END, &end, why);
    if (!code)
        code = omq_reader_assign(reader, queue, 1, why);
    if (!code)
        code = omq_reader_seek(reader, queue, at, why);
    while (!code && at < end) {
        struct omq_batch *batch;
        code = omq_reader_take(reader, 10000, &batch, why);
        if (code)
            break;
        size_t n;
        const struct omq_delivery *const *messages = omq_batch_messages(batch, &n);
        for (size_t i = 0; i < n; i++, at = messages[i - 1]->offset + 1)
            (void)printf("%d:%lld %.*s\n", queue->id, (long long)messages[i]->offset,
                         (int)messages[i]->body_size, (const char *)messages[i]->body);
        omq_batch_finish(batch, OMQ_DONE, 0);
    }
    return code;
}

int main(int argc, char **argv)
{
    struct omq_client_options servers = {.names = argc > 1 ? argv[1] : "127.0.0.1:9876"};
    struct omq_reader_options options = {.group = "auditors", .commit_every_ms = -1};
    struct omq_client *client = NULL;
    struct omq_reader *reader = NULL;
    struct omq_queue *queues = NULL;
    struct omq_error why;
    size_t n = 0;
    int code = omq_client_open(&servers, &client, &why);
    if (!code)
        code = omq_reader_open(client, &options, &reader, &why);
    if (!code)
        code = omq_topic_queues(client, argc > 2 ? argv[2] : "Greetings", &queues, &n, &why);
    for (size_t i = 0; !code && i < n; i++)
        code = read_queue(client, reader, &queues[i], &why);
    if (code)
        (void)fprintf(stderr, "%s\n", why.text);
    omq_queues_free(queues);
    omq_reader_close(reader);
    omq_client_close(client);
    return code != 0;
}
