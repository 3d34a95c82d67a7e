/* Sends one message and tells where it is.   produce [name server [topic [text]]] */
#include <oncemq.h>

#include <stdio.h>
#include <string.h>

int main(int argc, char **argv)
{
    const char *names = argc > 1 ? argv[1] : "127.0.0.1:9876";
    const char *topic = argc > 2 ? argv[2] : "Greetings";
    const char *text = argc > 3 ? argv[3] : "hello";

    struct omq_client *client = NULL;
    struct omq_producer *producer = NULL;
    struct omq_receipt receipt;
    struct omq_error why;
    int code = omq_client_open(&(struct omq_client_options){.names = names}, &client, &why);
    if (!code)
        code = omq_producer_open(client, &(struct omq_producer_options){.group = "greeters"},
                                 &producer, &why);
    struct omq_message message = {.topic = topic, .body = text, .body_size = strlen(text)};
    if (!code)
        code = omq_send(producer, &message, &receipt, &why);
    if (code)
        (void)fprintf(stderr, "not sent: %s\n", why.text);
    else
        (void)printf("%s %s:%d %lld\n", receipt.id, receipt.broker, receipt.queue_id,
                     (long long)receipt.queue_offset);
    omq_producer_close(producer);
    omq_client_close(client);
    return code != 0;
}
