package oncemq.clients;

import java.io.BufferedReader;
import java.io.ByteArrayOutputStream;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.HashMap;
import java.util.Map;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import org.apache.rocketmq.tools.command.MQAdminStartup;

/**
 * Many unmodified clients in one program, told by standard input what to do.
 *
 * <p>Usage: Puppet NAMESRV. A line of input is a {@link Command}; it is carried out at once, beside those that are still
 * under way, and answered by a line "id TAB ok TAB json" or "id TAB failed TAB reason". The end of input ends the program.
 * The sources compile against the clients 4.9 and 5.x, so the tests are the same for both.
 */
public final class Puppet {
    private interface Verb {
        Object run(Command command) throws Exception;
    }

    private final PrintStream answers = System.out;
    private final ByteArrayOutputStream printed = new ByteArrayOutputStream();
    private final ExecutorService pool = Executors.newCachedThreadPool();
    private final Map<String, Verb> verbs = new HashMap<>();
    private final String names;

    private Puppet(String names) {
        this.names = names;
        Settings settings = new Settings(names);
        Senders senders = new Senders(settings);
        Listeners listeners = new Listeners(settings, senders);
        Readers readers = new Readers(settings, senders);
        Transactors transactors = new Transactors(settings);
        verbs.put("send", senders::send);
        verbs.put("recall", senders::recall);
        verbs.put("request", senders::request);
        verbs.put("transactor", transactors::start);
        verbs.put("transact", transactors::send);
        verbs.put("asked", transactors::asked);
        verbs.put("listen", listeners::start);
        verbs.put("stop", listeners::stop);
        verbs.put("assigned", listeners::assigned);
        verbs.put("pull", readers::pull);
        verbs.put("queues", readers::queues);
        verbs.put("offset", readers::offset);
        verbs.put("commit", readers::commit);
        verbs.put("lite", readers::lite);
        verbs.put("lite_poll", readers::litePoll);
        verbs.put("lite_seek", readers::liteSeek);
        verbs.put("lite_commit", readers::liteCommit);
        verbs.put("lite_committed", readers::liteCommitted);
        verbs.put("lite_stop", readers::liteStop);
        verbs.put("query", readers::query);
        verbs.put("view", readers::view);
        verbs.put("admin", this::admin);
        verbs.put("close", command -> {
            listeners.close(command.text("prefix"));
            readers.close(command.text("prefix"));
            senders.close(command.text("prefix"));
            transactors.close(command.text("prefix"));
            return "closed";
        });
        // The admin tool prints; standard output belongs to the answers.
        System.setOut(new PrintStream(printed, true, StandardCharsets.UTF_8));
    }

    public static void main(String[] args) throws Exception {
        new Puppet(args[0]).run();
    }

    private void run() throws Exception {
        say("started");
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            Command command = new Command(line);
            pool.execute(() -> carryOut(command));
        }
        System.exit(0);
    }

    private void carryOut(Command command) {
        try {
            say(command.id + "\tok\t" + Json.write(verbs.get(command.verb).run(command)));
        } catch (Exception e) {
            e.printStackTrace();
            say(command.id + "\tfailed\t" + e.toString().replaceAll("\\s+", " "));
        }
    }

    /** One command of the official admin tool, and what it printed. */
    private String admin(Command command) {
        synchronized (printed) {
            printed.reset();
            MQAdminStartup.main0((command.text("args") + " -n " + names).split(" "), null);
            return printed.toString(StandardCharsets.UTF_8);
        }
    }

    private synchronized void say(String line) {
        answers.println(line);
        answers.flush();
    }
}
