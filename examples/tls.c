/* Sends one message by TLS.   tls [name server [topic [authority.pem [certificate.pem key.pem]]]]
 */
#include <oncemq.h>

#include <stdio.h>

int main(int argc, char **argv)
{
    struct omq_client_options options = {
        .names = argc > 1 ? argv[1] : "127.0.0.1:9876",
        .tls = true,
        .tls_ca = argc > 3 ? argv[3] : NULL, /* else the system's authorities */
        .tls_cert = argc > 5 ? argv[4] : NULL,
        .tls_key = argc > 5 ? argv[5] : NULL, /* a broker may want to know who we are */
    };
    struct omq_message message = {
        .topic = argc > 2 ? argv[2] : "Secrets", .body = "hush", .body_size = 4};

    struct omq_client *client = NULL;
    struct omq_producer *producer = NULL;
    struct omq_receipt receipt;
    struct omq_error why;
    int code = omq_client_open(&options, &client, &why); /* reads the files */
    if (!code)
        code = omq_producer_open(client, &(struct omq_producer_options){.group = "whisperers"},
                                 &producer, &why);
    if (!code)
        code = omq_send(producer, &message, &receipt, &why);
    if (code) /* whose certificate is not good, and why */
        (void)fprintf(stderr, "not sent: %s\n", why.text);
    else
        (void)printf("%s\n", receipt.id);
    omq_producer_close(producer);
    omq_client_close(client);
    return code != 0;
}
