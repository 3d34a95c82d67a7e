/* Sends a reminder that arrives in some seconds; with "recall" as the last word it is taken back at
 * once.   send_later [name server [topic [seconds [recall]]]] */
#include <oncemq.h>

#include <stdio.h>
#include <stdlib.h>

int main(int argc, char **argv)
{
    const char *names = argc > 1 ? argv[1] : "127.0.0.1:9876";
    const char *topic = argc > 2 ? argv[2] : "Reminders";
    long seconds = argc > 3 ? strtol(argv[3], NULL, 10) : 10;

    struct omq_client *client = NULL;
    struct omq_producer *producer = NULL;
    struct omq_receipt receipt;
    struct omq_error why;
    int code = omq_client_open(&(struct omq_client_options){.names = names}, &client, &why);
    if (!code)
        code = omq_producer_open(client, &(struct omq_producer_options){.group = "reminders"},
                                 &producer, &why);
    struct omq_message reminder = {
        .topic = topic, .body = "drink", .body_size = 5, .delay_ms = seconds * 1000};
    if (!code)
        code = omq_send(producer, &reminder, &receipt, &why);
    if (!code && argc > 4)
        code = omq_recall(producer, topic, receipt.recall, &why);
    if (code)
        (void)fprintf(stderr, "%s\n", why.text);
    else
        (void)printf("%s %s\n", receipt.id, argc > 4 ? "taken back" : "on its way");
    omq_producer_close(producer);
    omq_client_close(client);
    return code != 0;
}
