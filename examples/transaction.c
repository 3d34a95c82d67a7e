/* A message that is there if, and only if, something of ours was done.
 * transaction [name server [topic [commit | rollback]]] */
#include <oncemq.h>

#include <stdio.h>
#include <string.h>

/* Does the work that the message tells of, and says whether it is done. */
static int work(void *user, const struct omq_message *message, const struct omq_receipt *receipt)
{
    const char *wish = user;
    (void)message;
    (void)printf("half %s\n", receipt->id);
    return strcmp(wish, "commit") == 0 ? OMQ_COMMIT : OMQ_ROLLBACK;
}

/* Asked when the decision did not arrive: looks up whether the work was done. A real one looks into
 * its database, since the program that did the work may be gone. */
static int check(void *user, const struct omq_delivery *half)
{
    const char *wish = user;
    (void)printf("asked about %s\n", half->id);
    return strcmp(wish, "commit") == 0 ? OMQ_COMMIT : OMQ_ROLLBACK;
}

int main(int argc, char **argv)
{
    const char *names = argc > 1 ? argv[1] : "127.0.0.1:9876";
    const char *topic = argc > 2 ? argv[2] : "Payments";
    static char commit[] = "commit";
    char *wish = argc > 3 ? argv[3] : commit;

    struct omq_client *client = NULL;
    struct omq_producer *producer = NULL;
    struct omq_error why;
    int decision;
    int code = omq_client_open(&(struct omq_client_options){.names = names}, &client, &why);
    struct omq_producer_options options = {.group = "cashiers", .check = check, .user = wish};
    if (!code)
        code = omq_producer_open(client, &options, &producer, &why);
    struct omq_message message = {.topic = topic, .body = "paid", .body_size = 4};
    if (!code)
        code = omq_send_transaction(producer, &message, work, wish, NULL, &decision, &why);
    if (code)
        (void)fprintf(stderr, "%s\n", why.text);
    else
        (void)printf("%s\n", decision == OMQ_COMMIT ? "committed" : "rolled back");
    omq_producer_close(producer);
    omq_client_close(client);
    return code != 0;
}
