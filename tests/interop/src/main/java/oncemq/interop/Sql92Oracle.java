package oncemq.interop;

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.HashMap;
import java.util.Map;
import org.apache.rocketmq.broker.filter.MessageEvaluationContext;
import org.apache.rocketmq.filter.expression.Expression;
import org.apache.rocketmq.filter.expression.MQFilterException;
import org.apache.rocketmq.filter.parser.SelectorParser;

/**
 * What Apache's own filter says of expressions: reads lines "expression TAB name=value TAB name=value ..." and writes
 * each with its result and a tab in front.
 *
 * <p>T, F and N are true, false and null; E: the evaluation threw; X: the expression does not compile. In expressions
 * and values a backslash stands before t, n, r, f and itself.
 */
public final class Sql92Oracle {
    private Sql92Oracle() {
    }

    public static void main(String[] args) throws Exception {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        PrintStream out = new PrintStream(System.out, false, StandardCharsets.UTF_8);
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            String[] parts = line.split("\t", -1);
            Map<String, String> properties = new HashMap<>();
            for (int i = 1; i < parts.length; i++) {
                int equals = parts[i].indexOf('=');
                properties.put(parts[i].substring(0, equals), plain(parts[i].substring(equals + 1)));
            }
            out.print(result(plain(parts[0]), properties) + "\t" + line + "\n");
        }
        out.flush();
    }

    private static String result(String text, Map<String, String> properties) {
        Expression expression;
        try {
            expression = SelectorParser.parse(text);
        } catch (MQFilterException e) {
            return "X";
        }
        try {
            Object value = expression.evaluate(new MessageEvaluationContext(properties));
            return value == null ? "N" : (Boolean) value ? "T" : "F";
        } catch (Throwable e) {
            return "E";
        }
    }

    private static String plain(String text) {
        StringBuilder plain = new StringBuilder();
        for (int i = 0; i < text.length(); i++) {
            char c = text.charAt(i);
            if (c == '\\') {
                c = text.charAt(++i);
                c = c == 't' ? '\t' : c == 'n' ? '\n' : c == 'r' ? '\r' : c == 'f' ? '\f' : c;
            }
            plain.append(c);
        }
        return plain.toString();
    }
}
