/* Sends lines from standard input in as few requests as can be.   send_batch [name server [topic]]
 */
#include <oncemq.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define BATCH 1000

static int send_lines(struct omq_producer *producer, const char *topic, struct omq_error *why)
{
    static struct omq_message messages[BATCH];
    static struct omq_receipt receipts[BATCH];
    static char *lines[BATCH];
    size_t n = 0, sent = 0, size = 0;
    char *line = NULL;
    ssize_t len;
    while (n < BATCH && (len = getline(&line, &size, stdin)) > 0) {
        lines[n] = line;
        messages[n] =
            (struct omq_message){.topic = topic, .body = line, .body_size = (size_t)len - 1};
        line = NULL;
        n++;
    }
    free(line);
    int code = n > 0 ? omq_send_batch(producer, messages, n, receipts, &sent, why) : OMQ_OK;
    for (size_t i = 0; i < sent; i++)
        (void)printf("%s %d:%lld\n", receipts[i].id, receipts[i].queue_id,
                     (long long)receipts[i].queue_offset);
    for (size_t i = 0; i < n; i++)
        free(lines[i]);
    return code;
}

int main(int argc, char **argv)
{
    const char *names = argc > 1 ? argv[1] : "127.0.0.1:9876";
    const char *topic = argc > 2 ? argv[2] : "Lines";
    struct omq_client *client = NULL;
    struct omq_producer *producer = NULL;
    struct omq_error why;
    int code = omq_client_open(&(struct omq_client_options){.names = names}, &client, &why);
    if (!code)
        code = omq_producer_open(client, &(struct omq_producer_options){.group = "writers"},
                                 &producer, &why);
    while (!code && !feof(stdin))
        code = send_lines(producer, topic, &why);
    if (code)
        (void)fprintf(stderr, "not sent: %s\n", why.text);
    omq_producer_close(producer);
    omq_client_close(client);
    return code != 0;
}
