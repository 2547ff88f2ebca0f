/* The rules of one scenario, read once from the file that FAKE_SCENARIO names. A line is
 *   function gpu error CODE | function gpu delay SECONDS | function gpu value TEXT | function gpu kill -
 *   function gpu stuck SECONDS: the same as a delay, in the kernel, where no signal but the last one ends it
 * with gpu a number or *. A function without a rule is "not supported". */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MAX_RULES 8192

struct rule { char name[96]; int gpu; int error; double delay, stuck; char value[512]; int has_error, has_value, kills; };

static struct rule rules[MAX_RULES];
static int num_rules = -1;

static void read_rules(void) {
    char line[1024], name[96], gpu[16], kind[16];
    const char *path = getenv("FAKE_SCENARIO");
    FILE *file = path ? fopen(path, "r") : NULL;
    num_rules = 0;
    while (file && fgets(line, sizeof line, file) && num_rules < MAX_RULES) {
        int used = 0;
        if (sscanf(line, "%95s %15s %15s %n", name, gpu, kind, &used) < 3) continue;
        struct rule *rule = &rules[num_rules++];
        memset(rule, 0, sizeof *rule);
        snprintf(rule->name, sizeof rule->name, "%s", name);
        rule->gpu = gpu[0] == '*' ? -1 : atoi(gpu);
        line[strcspn(line, "\n")] = 0;
        if (!strcmp(kind, "error")) { rule->error = atoi(line + used); rule->has_error = 1; }
        rule->kills = !strcmp(kind, "kill");
        if (!strcmp(kind, "delay")) rule->delay = atof(line + used);
        if (!strcmp(kind, "stuck")) rule->stuck = atof(line + used);
        if (!strcmp(kind, "value")) { snprintf(rule->value, sizeof rule->value, "%s", line + used); rule->has_value = 1; }
    }
    if (file) fclose(file);
}

/* The later rule wins; a delay is slept here. 0 and the value, or the error; `missing` without any rule. */
static int obey(const char *name, int gpu, int missing, const char **value) {
    if (num_rules < 0) read_rules();
    int answer = missing;
    for (int i = 0; i < num_rules; i++) {
        if (strcmp(rules[i].name, name) || (rules[i].gpu >= 0 && rules[i].gpu != gpu)) continue;
        if (rules[i].kills) raise(SIGKILL);
        if (rules[i].delay > 0) usleep((useconds_t)(rules[i].delay * 1e6));
        // who has made a child by vfork is in state D until that ends
        if (rules[i].stuck > 0 && vfork() == 0) { usleep((useconds_t)(rules[i].stuck * 1e6)); _exit(0); }
        if (rules[i].has_error) answer = rules[i].error;
        if (rules[i].has_value) { answer = 0; if (value) *value = rules[i].value; }
    }
    return answer;
}
