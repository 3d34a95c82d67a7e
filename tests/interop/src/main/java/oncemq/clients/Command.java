package oncemq.clients;

import java.util.HashMap;
import java.util.Map;

/** One line of standard input: "id TAB verb TAB key=value TAB key=value ...". */
final class Command {
    final String id;
    final String verb;
    private final Map<String, String> args = new HashMap<>();

    Command(String line) {
        String[] parts = line.split("\t", -1);
        id = parts[0];
        verb = parts[1];
        for (int i = 2; i < parts.length; i++) {
            int at = parts[i].indexOf('=');
            args.put(parts[i].substring(0, at), parts[i].substring(at + 1));
        }
    }

    boolean has(String key) {
        return args.containsKey(key);
    }

    String text(String key) {
        String value = args.get(key);
        if (value == null) {
            throw new IllegalArgumentException(verb + " without " + key);
        }
        return value;
    }

    String text(String key, String otherwise) {
        return args.getOrDefault(key, otherwise);
    }

    int number(String key, int otherwise) {
        return has(key) ? Integer.parseInt(text(key)) : otherwise;
    }

    long wide(String key, long otherwise) {
        return has(key) ? Long.parseLong(text(key)) : otherwise;
    }

    boolean yes(String key) {
        return Boolean.parseBoolean(args.get(key));
    }
}
