/* complete.c - what could stand next on a command line, for shells.
 *
 *     oncemq completion bash|zsh    a few lines for the shell, which ask back:
 *     oncemq complete -- WORD…      the words so far, the last is being typed; an answer a line
 *
 * Commands, options and choices come from the table of commands. What an argument or an option's
 * value is called there says what it can be: a TOPIC, a GROUP and a BROKER are asked for at the
 * name servers that the line itself names, with a patience that a person at a keyboard has;
 * whatever goes wrong, nothing is offered and nothing is said.
 */
#include "cli/admin.h"
#include "cli/session_int.h"
#include "remoting/codes.h"

#include <string.h>

#define PATIENCE "300ms"

/* ---- scripts ---- */

static const char bash[] =
    "_oncemq() {\n"
    "    local line=\"${COMP_LINE:0:COMP_POINT}\" words\n"
    "    read -ra words <<<\"$line\"\n"
    "    [[ $line == *[[:blank:]] ]] && words+=(\"\")\n"
    "    local IFS=$'\\n'\n"
    "    COMPREPLY=($(\"${words[0]}\" complete -- \"${words[@]:1}\" 2>/dev/null))\n"
    "}\n"
    "complete -o default -F _oncemq oncemq\n";

/* As a file of fpath it is called by its name; sourced, it tells the shell of itself. */
static const char zsh[] =
    "#compdef oncemq\n"
    "_oncemq() {\n"
    "    local -a found\n"
    "    found=(${(f)\"$(${words[1]} complete -- \"${(@)words[2,CURRENT]}\" 2>/dev/null)\"})\n"
    "    compset -P '--*='\n"
    "    (( $#found )) && compadd -a found || _files\n"
    "}\n"
    "if [[ $funcstack[1] == _oncemq ]]; then\n"
    "    _oncemq \"$@\"\n"
    "else\n"
    "    compdef _oncemq oncemq\n"
    "fi\n";

int completion_script(struct cli *cli)
{
    const char *shell = arg_at(cli, 0);
    if (strcmp(shell, "bash") == 0)
        cli_write(cli, bytes_str(bash));
    else if (strcmp(shell, "zsh") == 0)
        cli_write(cli, bytes_str(zsh));
    else
        return cli_fail(cli, STATUS_USAGE, "there is bash and zsh", "no completion for %s",
                        printable(cli, bytes_str(shell)));
    return STATUS_OK;
}

/* ---- offers ---- */

static void offer(struct cli *cli, const char *word, size_t len, const char *typed,
                  const char *before)
{
    if (len >= strlen(typed) && strncmp(word, typed, strlen(typed)) == 0)
        cli_print(cli, "%s%.*s\n", before, (int)len, word);
}

static void offer_choices(struct cli *cli, const char *choices, const char *typed)
{
    for (const char *at = choices; at && *at;) {
        size_t len = strcspn(at, "|");
        offer(cli, at, len, typed, "");
        at += len + (at[len] == '|');
    }
}

static void offer_options(struct cli *cli, const struct opt *o, const char *typed)
{
    for (; o && o->name; o++)
        offer(cli, o->name, strlen(o->name), typed, "--");
}

/* The words of commands that may follow `first` (NULL: the first ones), each once. */
static void offer_commands(struct cli *cli, const char *first, const char *typed)
{
    const struct command *c;
    const char *last = NULL;
    size_t last_len = 0;
    for (size_t i = 0; (c = command_nth(i)); i++) {
        const char *blank = strchr(c->name, ' ');
        size_t len = blank ? (size_t)(blank - c->name) : strlen(c->name);
        if (first) {
            if (blank && strlen(first) == len && strncmp(c->name, first, len) == 0)
                offer(cli, blank + 1, strlen(blank + 1), typed, "");
        } else if (!last || last_len != len || strncmp(last, c->name, len) != 0) {
            offer(cli, c->name, len, typed, "");
            last = c->name;
            last_len = len;
        }
    }
}

static void offer_contexts(struct cli *cli, const char *typed)
{
    const struct session *s = cli->session;
    for (size_t i = 0; s && i < s->n_contexts; i++)
        offer(cli, s->contexts[i].name, strlen(s->contexts[i].name), typed, "");
}

/* ---- what servers know ---- */

/* A name goes to a shell as it is, so it must be one. */
static void offer_name(struct cli *cli, struct bytes name, const char *typed)
{
    for (size_t i = 0; i < name.len; i++)
        if (name.at[i] <= ' ' || name.at[i] == 0x7f)
            return;
    if (name.len > 0)
        offer(cli, (const char *)name.at, name.len, typed, "");
}

static void offer_topics(struct cli *cli, const char *typed)
{
    const struct json *body;
    struct omq_error why;
    struct admin_cluster on;
    if (admin_cluster_of(cli, NULL, &on, &why) ||
        admin_ask(cli, NULL, REQ_GET_ALL_TOPIC_LIST_FROM_NAMESERVER, NULL, (struct bytes){0}, &body,
                  &why))
        return;
    json_each(topic, json_member(body, "topicList"))
        if (*typed == '%' || !admin_topic_is_system(&on, admin_text(cli, topic)))
            offer_name(cli, json_text(topic, BYTES("")), typed);
}

static void offer_groups(struct cli *cli, const char *typed)
{
    struct omq_error why;
    struct admin_cluster on;
    if (admin_cluster_of(cli, NULL, &on, &why))
        return;
    struct admin_ask *asks = admin_alloc(cli, on.n, sizeof *asks);
    size_t n = 0;
    for (size_t i = 0; i < on.n; i++)
        if (on.brokers[i].master)
            asks[n++] = (struct admin_ask){.server = on.brokers[i].master,
                                           .request = REQ_GET_ALL_SUBSCRIPTIONGROUP_CONFIG};
    if (admin_ask_all(cli, asks, n))
        return;
    for (size_t i = 0; i < n; i++) /* one that several brokers have comes several times */
        json_each(group, json_member(asks[i].json, "subscriptionGroupTable"))
            if (!admin_group_is_system(admin_text(cli, group->key)))
                offer_name(cli, json_text(group->key, BYTES("")), typed);
}

static void offer_brokers(struct cli *cli, const char *typed)
{
    struct omq_error why;
    struct admin_cluster on;
    if (admin_cluster_of(cli, NULL, &on, &why))
        return;
    for (size_t i = 0; i < on.n; i++)
        offer_name(cli, bytes_str(on.brokers[i].name), typed);
}

/* ---- the line ---- */

struct line {
    const struct command *command;
    const char *bare[3]; /* the first words that are no options */
    size_t n_bare;
    const struct opt *awaits; /* the last word is its value */
    const char *typed;
    bool elsewhere; /* it says where the name servers are */
};

static const struct opt *option_of(const struct line *line, const char *word, const char **value)
{
    *value = NULL;
    if (word[1] != '-') {
        *value = word[2] ? word + 2 : NULL;
        return opt_letter(line->command, word[1]);
    }
    size_t len = strcspn(word + 2, "=");
    *value = word[2 + len] == '=' ? word + 3 + len : NULL;
    return opt_find(line->command, bytes_of(word + 2, len));
}

/* Options that say which cluster is meant count here, too. */
static void option_take(struct cli *cli, struct line *line, const struct opt *opt,
                        const char *value)
{
    static const char *const which[] = {"names",   "context",      "config",
                                        "tls",     "tls-ca",       "tls-cert",
                                        "tls-key", "tls-insecure", "access-key"};
    for (size_t i = 0; i < sizeof which / sizeof *which; i++)
        if (strcmp(opt->name, which[i]) == 0 && opt == opt_find(NULL, bytes_str(which[i])))
            line->elsewhere = args_add(cli, opt, value) == STATUS_OK;
}

static void line_read(struct cli *cli, struct line *line)
{
    size_t n = arg_count(cli);
    line->typed = n > 0 ? arg_at(cli, n - 1) : "";
    for (size_t i = 0; i + 1 < n; i++) {
        const char *word = arg_at(cli, i), *value;
        if (word[0] != '-' || !word[1]) {
            if (line->n_bare < 3)
                line->bare[line->n_bare] = word;
            line->n_bare++;
            if (!line->command && line->n_bare <= 2)
                line->command = command_named(line->bare[0], line->n_bare > 1 ? word : NULL);
            continue;
        }
        const struct opt *opt = option_of(line, word, &value);
        if (!opt || (opt->kind == OPT_SWITCH && value))
            continue;
        if (opt->kind != OPT_SWITCH && !value && i + 2 == n)
            line->awaits = opt;
        else if (opt->kind != OPT_SWITCH && !value)
            value = arg_at(cli, ++i);
        if (!line->awaits)
            option_take(cli, line, opt, value);
    }
    const char *value;
    if (strncmp(line->typed, "--", 2) == 0 && strchr(line->typed, '=')) {
        line->awaits = option_of(line, line->typed, &value);
        line->typed = value;
    }
}

/* The word that the table has for the argument that is typed: "TOPIC"; "" if there is none. */
static struct bytes argument_word(const struct line *line)
{
    size_t at = line->n_bare - (strchr(line->command->name, ' ') ? 2 : 1);
    const char *word = line->command->arguments ? line->command->arguments : "";
    size_t len = strcspn(word, " ");
    while (at > 0 && word[len]) {
        word += len + strspn(word + len, " ");
        len = strcspn(word, " ");
        at--;
    }
    struct bytes text = bytes_of(word, len);
    bool many = len >= 3 && memmem(word, len, "…", 3);
    if (at > 0 && !many)
        return BYTES("");
    while (text.len > 0 && text.at[0] == '[')
        text = bytes_from(text, 1);
    text.len = strspn((const char *)text.at, "ABCDEFGHIJKLMNOPQRSTUVWXYZ-") < text.len
                   ? strspn((const char *)text.at, "ABCDEFGHIJKLMNOPQRSTUVWXYZ-")
                   : text.len;
    return text;
}

static void offer_kind(struct cli *cli, const struct line *line, struct bytes kind)
{
    bool context = line->command && strncmp(line->command->name, "context ", 8) == 0;
    if (bytes_equal(kind, BYTES("SHELL")))
        offer_choices(cli, "bash|zsh", line->typed);
    else if (bytes_equal(kind, BYTES("COMMAND")) || bytes_equal(kind, BYTES("VERB")))
        offer_commands(cli, line->n_bare > 1 ? line->bare[1] : NULL, line->typed);
    else if (bytes_equal(kind, BYTES("NAME")) && context)
        offer_contexts(cli, line->typed);
    else if (args_add(cli, opt_find(NULL, BYTES("timeout")), PATIENCE))
        return;
    else if (bytes_equal(kind, BYTES("TOPIC")))
        offer_topics(cli, line->typed);
    else if (bytes_equal(kind, BYTES("GROUP")))
        offer_groups(cli, line->typed);
    else if (bytes_equal(kind, BYTES("BROKER")))
        offer_brokers(cli, line->typed);
}

int complete_words(struct cli *cli)
{
    struct line line = {0};
    line_read(cli, &line);
    if (line.elsewhere) {
        session_close(cli);
        if (session_open(cli))
            return STATUS_OK;
    }
    if (line.awaits && line.awaits == opt_find(NULL, BYTES("context"))) {
        offer_contexts(cli, line.typed);
    } else if (line.awaits) {
        offer_choices(cli, line.awaits->choices, line.typed);
        if (line.awaits->kind == OPT_TEXT && line.awaits->value)
            offer_kind(cli, &line, bytes_str(line.awaits->value));
    } else if (line.typed[0] == '-') {
        const char *name = line.typed + 1 + (line.typed[1] == '-');
        offer_options(cli, line.command ? line.command->options : NULL, name);
        offer_options(cli, global_options, name);
    } else if (line.command) {
        offer_kind(cli, &line, argument_word(&line));
    } else if (line.n_bare < 2) {
        offer_commands(cli, line.n_bare > 0 ? line.bare[0] : NULL, line.typed);
    }
    return STATUS_OK;
}
