// liboncemq from C++: the header, callbacks as lambdas, designated by hand because C++ wants them in order.
#include <oncemq.h>

#include <atomic>
#include <cstdio>
#include <cstring>
#include <memory>
#include <string>

struct closer {
    void operator()(omq_client *c) const { omq_client_close(c); }
    void operator()(omq_producer *p) const { omq_producer_close(p); }
};

int main(int argc, char **argv)
{
    omq_error why;
    omq_client_options client_options = {};
    client_options.names = argc > 1 ? argv[1] : "127.0.0.1:9876";
    omq_client *raw_client;
    if (omq_client_open(&client_options, &raw_client, &why) != OMQ_OK)
        return std::fprintf(stderr, "%s\n", why.text), 1;
    std::unique_ptr<omq_client, closer> client(raw_client);

    omq_producer_options options = {};
    options.group = "cxx";
    omq_producer *raw_producer;
    if (omq_producer_open(client.get(), &options, &raw_producer, &why) != OMQ_OK)
        return std::fprintf(stderr, "%s\n", why.text), 1;
    std::unique_ptr<omq_producer, closer> producer(raw_producer);

    const std::string body = "from C++";
    omq_message message = {};
    message.topic = argc > 2 ? argv[2] : "Cxx";
    message.body = body.data();
    message.body_size = body.size();
    omq_receipt receipt;
    if (omq_send(producer.get(), &message, &receipt, &why) != OMQ_OK)
        return std::fprintf(stderr, "%s\n", why.text), 1;
    std::printf("%s\n", receipt.id);

    std::atomic<int> stored{0};
    auto done = [](void *user, const omq_receipt *got, const omq_error *) {
        *static_cast<std::atomic<int> *>(user) += got != nullptr;
    };
    for (int i = 0; i < 100; i++)
        if (omq_send_async(producer.get(), &message, done, &stored, &why) != OMQ_OK)
            return std::fprintf(stderr, "%s\n", why.text), 1;
    producer.reset();
    std::printf("%d\n", stored.load());
    return 0;
}
