package main

import (
	"cmp"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/alecthomas/kong"

	"stoa/cmd/stoa/stoatest"
	"stoa/tenancy/db/dbtest"
)

// docPage says how TestDocs runs the command lines of a page or an example.
type docPage struct {
	// config is the file of the server's default app: for examples the example itself, else examples/default.yaml.
	config string
	// prepare are shell commands that the page takes for granted. The folder has copies of acme.yaml and globex.yaml.
	prepare string
	// files are the files that the page shows: by name, what the block with the file's text begins with.
	files map[string]string
	// replaced maps what a reader puts in the place of an example's value. The longest is replaced first.
	replaced map[string]string
	// skipped maps the beginning of lines that are not run to the reason. Their flags are checked like those of all.
	skipped map[string]string
	// exits maps the beginning of lines to their exit codes, if these are not 0. exitError is that of an answer with an error.
	exits map[string]int
	// written are texts that the commands must write.
	written []string
}

// errorAnswer is the exit code of a curl line whose answer has an error but status 200, as in JSON-RPC. curl's own code
// for an answer with another status is 22.
const errorAnswer = 90

// anyExit accepts every exit code.
const anyExit = -1

const (
	needsPostgres = "needs a PostgreSQL server at a fixed address"
	needsServe    = "starts a server: one is running"
	needsVendor   = "needs a vendor's key and network"
	needsTerminal = "asks at a terminal"
	needsCluster  = "needs a cluster of Kubernetes"
	needsPackage  = "needs the Debian package to be installed, as TestPackages does"
)

// acmeApp creates the app acme of the pages, and a token.
const acmeApp = `stoa app create acme --config acme.yaml
T=$(stoa app token acme --sub ana --role operator)
`

// docPages has a row for each page and example with command lines. Examples that run without a terminal, a key and
// another server need no row.
var docPages = map[string]docPage{
	"README.md": {
		skipped: map[string]string{"stoa serve": needsPostgres, "export STOA_ADMIN_SECRET": "sets another secret than the server's"},
		// A foreign task is answered like one that does not exist.
		exits:   map[string]int{"curl http://localhost:8080/agents/assistant -H \"Authorization: Bearer $G\"": errorAnswer},
		written: []string{"welcome to Acme", "594 dollars", `"type":"task.status_update"`, `"state":"submitted"`, `"state":"working"`, `"state":"completed"`, `"code":-32001`},
	},
	"docs/api/admin.md":     {prepare: acmeApp, written: []string{`"name":"acme"`}},
	"docs/api/extension.md": {prepare: acmeApp, written: []string{`"state":"completed"`}},
	"docs/approvals.md": {
		config: "examples/approval.yaml",
		prepare: `stoa call clerk "pay 40" || true # it waits
stoa call clerk "pay 50" || true
TASK=$(stoa task list --state input_required | awk 'NR == 2 {print $1}') OTHER=$(stoa task list --state input_required | awk 'NR == 3 {print $1}')
`,
		replaced: map[string]string{"approve $TASK": "approve $TASK --yes", "reject $TASK": "reject $OTHER --yes"},
		written:  []string{`pay({"expression":"50 * 1"})`, "is rejected"},
	},
	"docs/billing.md": {
		prepare: acmeApp + "echo '{\"name\": \"Acme GmbH\"}' >buyer.json\n",
		files: map[string]string{
			"prices.json": `{"version": "2026-11"`, "plan.json": `{"name": "starter"`, "budget.json": `{"name": "cap"`, "seller.json": `{"name": "Agents Ltd"`,
		},
		replaced: map[string]string{
			"2026-11": time.Now().UTC().Format("2006-01"),
			// The app exists, and its usage is written some time after the call.
			"stoa app create acme --config acme.yaml --plan starter": "stoa app update acme --plan starter && stoa call assistant hello --token $T && " +
				"for i in $(seq 100); do stoa billing usage acme --group-by model | grep -q scripted && break; sleep 0.1; done",
			"finalize acme 2026-11": "finalize acme " + time.Now().UTC().Format("2006-01") + " --force --yes", // the month is running
		},
		written: []string{
			"starter added, base fee 20.00 USD", "base fee of plan starter                                               20.00 USD", "Tax id DE123456789", "Acme GmbH",
			"of 18.10 USD", "is number 1, due 21.54 USD", "-reversal of acme is number 2, due -21.54 USD", "-2 of acme is number 3, due 21.54 USD",
			"USD       21.54       -20.096  -3.44  -0.004   0.00     2.00       0.05  -0.05",
		},
	},
	"docs/cli.md": {prepare: acmeApp, written: []string{"594 dollars", "99 dollars", "ID  "}},
	"docs/configuration.md": {
		// The third revision, as on the page.
		prepare: acmeApp + `stoa app update acme --config globex.yaml
stoa app update acme --config acme.yaml
STOA=$STOA_SERVER TOKEN=$(stoa app token acme --sub dev --role developer)
`,
		written: []string{`"warnings":[]`},
	},
	"docs/documents.md": {
		skipped: map[string]string{"stoa serve": needsServe},
		written: []string{"The warranty is two years [1].", "[1] warranty.md, ", "searched by hybrid", "2 indexed, 0 failed", "deleted warranty.md"},
	},
	"docs/identity.md": {
		prepare:  acmeApp,
		replaced: map[string]string{"k4vd2mzqk7ra": `$(stoa app key list acme | awk 'NR == 2 {print $1}')`},
		skipped:  map[string]string{"stoa app create acme": "the issuer login.acme.example does not exist"},
		written:  []string{`"Acme Counter"`, "order system"},
	},
	"docs/limits.md": {prepare: acmeApp},
	"docs/operations.md": {prepare: acmeApp, skipped: map[string]string{
		"export STOA_SERVER": "names another server", "export STOA_ADMIN_SECRET": "sets another secret than the server's", "stoa serve": needsPostgres, "stoa migrate": needsPostgres,
	}},
	"docs/operations/backup.md": {
		prepare: "stoa migrate up && mkdir restored\n",
		skipped: map[string]string{"pg_": needsPostgres, "createdb ": needsPostgres, "stoa migrate roles": needsPostgres, "stoa serve": needsPostgres},
		written: []string{"stoa-1.backup has the database stoa.db of", `"file": "stoa-2.backup"`, "restored/stoa.db has the backup stoa-2.backup", "recorded: the last backup was begun at", "all balances are what was used"},
	},
	"docs/operations/disaster.md": {prepare: "stoa migrate up\n", written: []string{"up to date", "all balances are what was used"}},
	"docs/operations/upgrade.md":  {prepare: "stoa migrate up\n", written: []string{"up to date", "before-the-upgrade.backup has the database"}},
	"docs/operations/install.md": {skipped: map[string]string{
		"apt ": needsPackage, "systemctl ": needsPackage, "export STOA_ADMIN_SECRET_FILE": needsPackage, "stoa app create": needsPackage, "T=$(stoa": needsPackage, "stoa call": needsPackage, "runuser ": needsPackage,
	}},
	"docs/operations/doctor.md": {prepare: "export STOA_PORT=0 # other programs may have the default\n", written: []string{"there is no file stoa.db yet", `"status": "warn"`}},
	"docs/operations/rolling.md": {
		skipped: map[string]string{"systemctl ": needsPackage, "apt ": needsPackage, "stoa health": needsPackage},
		written: []string{"up to date"},
		prepare: "stoa migrate up\n",
	},
	"docs/operations/kubernetes.md": {skipped: map[string]string{"stoa migrate roles": needsPostgres, "kubectl ": needsCluster, "helm ": needsCluster}},
	"docs/operations/rotation.md":   {prepare: "stoa migrate\n", written: []string{"0 under a former one"}},
	"docs/operations/move.md": {
		prepare: acmeApp,
		skipped: map[string]string{"stoa app import": "needs a second installation", "stoa app resume": "needs a second installation"},
		written: []string{"acme exported to acme.jsonl", "acme deleted"},
	},
	"docs/operations/off-boarding.md":           {prepare: acmeApp, written: []string{"acme exported to acme.jsonl", "acme deleted", "app.deleted"}},
	"docs/runbooks/StoaAppLoadsFail.md":         {prepare: acmeApp + "stoa app update acme --config globex.yaml\n", written: []string{"REVISION"}},
	"docs/runbooks/StoaAuditFlaws.md":           {prepare: acmeApp, written: []string{"good", "[]"}},
	"docs/runbooks/StoaAvailabilityFastBurn.md": {prepare: acmeApp, written: []string{"acme suspended"}},
	"docs/runbooks/StoaBackupOld.md":            {prepare: "stoa migrate up\n", written: []string{"recorded: the last backup was begun at"}},
	"docs/runbooks/StoaBudgetFlaws.md":          {prepare: "stoa migrate up\n", written: []string{"all balances are what was used"}},
	"docs/runbooks/StoaBudgetLow.md": {
		prepare: acmeApp + `echo '{"name": "month", "unit": "tokens", "amount": 1000000, "window": "month", "hard": true}' | stoa billing budget add - --app acme
`,
		written: []string{"RESETS", "CHARGE", "month changed"},
	},
	"docs/runbooks/StoaConfigRefused.md":       {replaced: map[string]string{"/etc/stoa/stoa.yaml": "server.yaml"}},
	"docs/runbooks/StoaCrashLoop.md":           {prepare: acmeApp, written: []string{"ERROR", "acme suspended"}},
	"docs/runbooks/StoaDatabaseDown.md":        {written: []string{`"database":"connected"`}},
	"docs/runbooks/StoaDeadLetters.md":         {written: []string{"ERROR", "0 requeued"}},
	"docs/runbooks/StoaDiskFull.md":            {prepare: acmeApp, written: []string{`"rows"`}},
	"docs/runbooks/StoaDocumentsWait.md":       {prepare: "stoa app create acme --config examples/documents.yaml\n", written: []string{"manual"}},
	"docs/runbooks/StoaDown.md":                {written: []string{`"database":"connected"`, `"status":"ready"`}},
	"docs/runbooks/StoaExportFails.md":         {written: []string{"LAST ERROR"}},
	"docs/runbooks/StoaMasterKeyChangeOpen.md": {prepare: "stoa migrate up\n", written: []string{"0 under a former one"}},
	"docs/runbooks/StoaMasterKeyMissing.md":    {written: []string{`"status":"ready"`}},
	"docs/runbooks/StoaModelFails.md":          {prepare: acmeApp + "echo key >key.txt\n"},
	"docs/runbooks/StoaProcessDown.md":         {written: []string{`"database":"connected"`}},
	"docs/runbooks/StoaQueueOld.md":            {prepare: acmeApp, written: []string{"pending 0", "acme updated"}},
	"docs/runbooks/StoaRunsUnrecorded.md": {
		prepare: `stoa app create acme --config examples/approval.yaml
T=$(stoa app token acme --sub on-call --role operator)
stoa call clerk "pay 40" --token $T || true # it waits
TASK=$(stoa task list --token $T | awk 'NR == 2 {print $1}')
`,
		exits:   map[string]int{"stoa task get": exitWaiting},
		written: []string{"pending 0", "cancelled"},
	},
	"docs/runbooks/StoaTicksFail.md": {prepare: acmeApp, written: []string{"acme suspended"}},
	"docs/security.md":               {skipped: map[string]string{"stoa serve": needsPostgres}},
	"docs/self-service.md": {
		// The third revision, as on the page.
		prepare: acmeApp + `stoa app update acme --config globex.yaml
stoa app update acme --config acme.yaml
STOA=$STOA_SERVER TOKEN=$(stoa app token acme --sub dana --role developer)
`,
		skipped: map[string]string{"export STOA": "names another server"},
		written: []string{`"warnings":[]`},
	},
	"docs/console.md": {skipped: map[string]string{"stoa serve": needsServe}},
	"docs/studio.md":  {config: "examples/studio.yaml", skipped: map[string]string{"stoa serve": needsServe}, written: []string{`"status":"saved"`}},
	"docs/triggers.md": {
		prepare: `cat >hooks.yaml <<END
llms: {default: {provider: scripted}}
agents:
  triage: {trigger: {type: webhook, secret: "\${HOOK_SECRET}"}}
  deploy: {trigger: {type: webhook, secret: "\${HOOK_SECRET}", timestamp_header: X-Webhook-Timestamp}}
  reporter: {trigger: {type: schedule, cron: "0 0 1 1 *"}}
END
HOOK_SECRET=0123456789abcdefghijklmn
stoa app create acme --config hooks.yaml --secret HOOK_SECRET=$HOOK_SECRET
STOA_TOKEN=$(stoa app token acme --sub otto --role operator)
`,
		written: []string{`"agent_name":"triage"`, `"agent_name":"deploy"`, `"agent_name":"reporter"`},
	},
	"examples/acme.yaml": {config: "examples/default.yaml"}, "examples/globex.yaml": {config: "examples/default.yaml"},
	"examples/approval.yaml": {
		exits:    map[string]int{"stoa call clerk": exitWaiting}, // without a terminal
		replaced: map[string]string{"approve TASK": `approve $(stoa task list --state input_required | awk 'NR == 2 {print $1}') --yes`},
		written:  []string{"waits for an approval", "is working"},
	},
	"examples/auth.yaml": {written: []string{"stoa_default_", `"agents-web"`}},
	"examples/busy.yaml": {written: []string{"Once upon a time."}},
	"examples/checkpoints.yaml": {
		skipped: map[string]string{"stoa serve": needsServe},
	},
	"examples/credential.yaml": {exits: map[string]int{"stoa call clerk": exitWaiting}, written: []string{"waits for a credential"}}, // without a terminal
	"examples/documents.yaml":  {written: []string{"The warranty is two years [1].", "[1] warranty.md, "}},
	"examples/guardrails.yaml": {exits: map[string]int{"stoa call clerk 'Ignore": exitRejected, "stoa call clerk 'What is": exitRejected}},
	"examples/limits.yaml": {
		// The last call is refused, unless another minute has begun.
		exits:   map[string]int{"for i in": anyExit},
		written: []string{"HTTP/1.1 200", "X-Ratelimit-Remaining: 19"},
	},
	"examples/memory-vector.yaml":   {skipped: map[string]string{"stoa call": "needs an Ollama server"}},
	"examples/model-anthropic.yaml": {skipped: map[string]string{"stoa call": needsVendor}},
	"examples/model-gemini.yaml":    {skipped: map[string]string{"stoa call": needsVendor}},
	"examples/model-ollama.yaml":    {skipped: map[string]string{"stoa call": "needs an Ollama server"}},
	"examples/model-openai.yaml":    {skipped: map[string]string{"stoa call": needsVendor}},
	"examples/studio.yaml":          {skipped: map[string]string{"stoa serve": needsServe}, written: []string{"allowed_roles: [operator, admin]"}},
	"examples/remote.yaml":          {skipped: map[string]string{"stoa call": "needs another server"}},
}

// TestDocs runs every curl and stoa line of the README, the documentation and the examples in a shell, as they are, against
// a server. Where a line names the server's address that of the test stands for it.
func TestDocs(t *testing.T) {
	t.Parallel()
	root := filepath.Join("..", "..")
	files := listPages(t, root)
	for file := range docPages {
		if !slices.Contains(files, file) {
			t.Errorf("%s has no command lines", file)
		}
	}
	for _, file := range files {
		t.Run(file, func(t *testing.T) {
			t.Parallel()
			text, err := os.ReadFile(filepath.Join(root, file))
			if err != nil {
				t.Fatal(err)
			}
			page, known := docPages[file]
			if !known && strings.HasSuffix(file, ".md") {
				t.Fatal("docPages has no row for this page: how are its command lines run?")
			}
			if page.config == "" {
				page.config = "examples/default.yaml"
				if strings.HasSuffix(file, ".yaml") {
					page.config = file
				}
			}
			page.run(t, root, string(text), listCommandLines(file, string(text)))
		})
	}
}

// listPages returns the pages and examples that have command lines.
func listPages(t *testing.T, root string) (found []string) {
	t.Helper()
	for _, from := range []string{"README.md", "docs", "examples"} {
		err := filepath.WalkDir(filepath.Join(root, from), func(name string, entry fs.DirEntry, err error) error {
			if err != nil || entry.IsDir() || !slices.Contains([]string{".md", ".yaml"}, filepath.Ext(name)) {
				return err
			}
			text, err := os.ReadFile(name)
			if relative, _ := filepath.Rel(root, name); err == nil && len(listCommandLines(relative, string(text))) > 0 {
				found = append(found, filepath.ToSlash(relative))
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return found
}

var (
	// commandPattern matches a curl or stoa command in a shell's text.
	commandPattern = regexp.MustCompile(`(?m)(?:^|[|;&(] *|\bdo )(curl|stoa) `)
	// fencePattern matches a block, which is indented in a list.
	fencePattern = regexp.MustCompile("(?ms)^( *)```(\\w*)[^\\n]*\\n(.*?)^ *```")
	// indentedPattern matches the commands in the comment at the beginning of an example.
	indentedPattern = regexp.MustCompile(`(?m)(?:^#   .*\n)+`)
	addressPattern  = regexp.MustCompile(`https://stoa\.example\.com|(?:http://)?(?:localhost|127\.0\.0\.1):8080`)
)

// listCommandLines returns the command lines of the shell blocks of a page that have a curl or stoa command. A line that
// continues in the next ones is one.
func listCommandLines(file, text string) (lines []string) {
	var blocks []string
	if strings.HasSuffix(file, ".md") {
		for _, m := range fencePattern.FindAllStringSubmatch(text, -1) {
			block := strings.ReplaceAll("\n"+m[3], "\n"+m[1], "\n")[1:]
			if m[2] == "sh" || m[2] == "" && regexp.MustCompile(`(?m)^(curl|stoa) `).MatchString(block) {
				blocks = append(blocks, block)
			}
		}
	} else {
		for _, m := range indentedPattern.FindAllString(text, -1) {
			blocks = append(blocks, strings.ReplaceAll(strings.TrimPrefix(m, "#   "), "\n#   ", "\n"))
		}
	}
	for _, block := range blocks {
		if commandPattern.MatchString(block) {
			lines = append(lines, joinLines(block)...)
		}
	}
	return lines
}

// joinLines returns the lines of a shell's text without comments. A line that ends in a backslash or a pipe, or within
// quotes, is joined with the next ones.
func joinLines(block string) (lines []string) {
	var line strings.Builder
	quote := rune(0)
	for text := range strings.Lines(block) {
		if quote == 0 && line.Len() == 0 && (strings.HasPrefix(text, "#") || strings.TrimSpace(text) == "") {
			continue
		}
		line.WriteString(text)
		for _, r := range text {
			switch {
			case quote == 0 && (r == '\'' || r == '"'):
				quote = r
			case r == quote:
				quote = 0
			}
		}
		if end := strings.TrimSpace(text); quote == 0 && !strings.HasSuffix(end, `\`) && !strings.HasSuffix(end, "|") {
			lines = append(lines, strings.TrimSpace(line.String()))
			line.Reset()
		}
	}
	return append(lines, strings.Fields(line.String())...)
}

// docPrelude are the functions of the shell that runs a page. curl fails for an answer with an error, and check reports a
// line that does not end with its exit code.
const docPrelude = `set -uo pipefail
curl() {
  local out code
  out=$(command curl --fail-with-body --silent --show-error "$@"); code=$?
  printf '%%s\n' "$out"
  case $out in *'"error":{'*) [ $code = 0 ] && code=%d;; esac
  return $code
}
check() { [ $1 = $2 ] || [ $2 = %d ] || echo "FAILED with exit code $1, not $2: $3"; }
`

// run runs the lines of a page with that text against a server.
func (p docPage) run(t *testing.T, root, text string, lines []string) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := "http://" + listener.Addr().String()
	script := p.buildScript(t, lines, address)
	if script == "" {
		_ = listener.Close()
		return
	}
	dir := p.prepareFolder(t, root, address)
	p.writeFiles(t, dir, text)
	prepared, err := prepareServer(t, dbtest.NewSQLiteURL(t), newTestLog(t), filepath.Join(dir, "server.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	serveUntilStopped(t, prepared, listener)
	sh := exec.CommandContext(t.Context(), "bash")
	sh.Dir, sh.Stdin = dir, strings.NewReader(script)
	sh.Env = stoatest.Environment("STOA_SERVER=" + address)
	out, err := sh.CombinedOutput()
	if err != nil || strings.Contains(string(out), "FAILED with") {
		t.Errorf("%v:\n%s", err, out)
	}
	for _, want := range p.written {
		if !strings.Contains(string(out), want) {
			t.Errorf("the commands do not write %s:\n%s", want, out)
		}
	}
}

// buildScript returns the shell's text that runs the lines of a page, each with a check of its exit code, "" if all are
// skipped.
func (p docPage) buildScript(t *testing.T, lines []string, address string) string {
	t.Helper()
	script := ""
	used := map[string]bool{}
	for _, line := range lines {
		if start := findStart(p.skipped, line); start != "" {
			t.Logf("not run (%s): %s", p.skipped[start], line)
			used[start] = true
			continue
		}
		start := findStart(p.exits, line)
		used[start] = true
		command := addressPattern.ReplaceAllString(line, address)
		for _, from := range p.listReplaced() {
			used[from] = used[from] || strings.Contains(command, from)
			command = strings.ReplaceAll(command, from, p.replaced[from])
		}
		script += fmt.Sprintf("%s\ncheck $? %d %s\n", command, p.exits[start], quoteWord(line))
	}
	for _, keys := range [][]string{slices.Collect(maps.Keys(p.skipped)), slices.Collect(maps.Keys(p.exits)), slices.Collect(maps.Keys(p.replaced))} {
		for _, key := range keys {
			if !used[key] {
				t.Errorf("no line of the page has %s", key)
			}
		}
	}
	if script == "" {
		return ""
	}
	return fmt.Sprintf(docPrelude, errorAnswer, anyExit) + "set -e\n" + p.prepare + "set +e\n" + script
}

// listReplaced returns the keys of replaced, the longest first.
func (p docPage) listReplaced() []string {
	return slices.SortedFunc(maps.Keys(p.replaced), func(a, b string) int { return cmp.Or(len(b)-len(a), strings.Compare(a, b)) })
}

// writeFiles writes the files that the page shows.
func (p docPage) writeFiles(t *testing.T, dir, text string) {
	t.Helper()
	for name, start := range p.files {
		i := strings.Index(text, "\n```json\n"+start)
		if i < 0 {
			t.Fatalf("the page has no block that begins with %s", start)
		}
		body, _, _ := strings.Cut(text[i+len("\n```json\n"):], "```")
		for _, from := range p.listReplaced() {
			body = strings.ReplaceAll(body, from, p.replaced[from])
		}
		if err := os.WriteFile(filepath.Join(dir, name), []byte(body), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// findStart returns the key with which a line begins, "" if it begins with none.
func findStart[V any](table map[string]V, line string) string {
	for start := range table {
		if strings.HasPrefix(line, start) {
			return start
		}
	}
	return ""
}

// prepareFolder returns a folder with the examples, the configurations of the apps, and that of the server, in which the
// addresses of this server and of an issuer of tokens are those of the test.
func (p docPage) prepareFolder(t *testing.T, root, address string) string {
	t.Helper()
	dir := t.TempDir()
	if err := os.CopyFS(filepath.Join(dir, "examples"), os.DirFS(filepath.Join(root, "examples"))); err != nil {
		t.Fatal(err)
	}
	issuer := newForeignIssuer(t)
	for name, from := range map[string]string{"acme.yaml": "examples/acme.yaml", "globex.yaml": "examples/globex.yaml", "server.yaml": p.config} {
		src, err := os.ReadFile(filepath.Join(root, from))
		if err != nil {
			t.Fatal(err)
		}
		text := addressPattern.ReplaceAllString(string(src), address)
		text = strings.ReplaceAll(text, "https://login.example.com", issuer.url)
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// TestDocsCommands checks that every stoa command that the README, the documentation and the examples name exists with its
// flags, also within text.
func TestDocsCommands(t *testing.T) {
	t.Parallel()
	parser, err := kong.New(&commands{}, kong.Vars{"defaultServer": defaultServer}, kong.Writers(io.Discard, io.Discard))
	if err != nil {
		t.Fatal(err)
	}
	quoted := regexp.MustCompile("`stoa ([^`]+)`")
	command := regexp.MustCompile(`(?m)(?:^|[|;&(] *)stoa ([^|;&)#]+)`)
	root, count := filepath.Join("..", ".."), 0
	for _, from := range []string{"README.md", "docs", "examples"} {
		err := filepath.WalkDir(filepath.Join(root, from), func(name string, entry fs.DirEntry, err error) error {
			if err != nil || entry.IsDir() {
				return err
			}
			text, err := os.ReadFile(name)
			found := quoted.FindAllStringSubmatch(string(text), -1)
			for _, line := range listCommandLines(name, string(text)) {
				found = append(found, command.FindAllStringSubmatch(line, -1)...)
			}
			for _, m := range found {
				count++
				if wrong := checkCommand(parser.Model.Node, strings.Fields(m[1])); wrong != "" {
					t.Errorf("%s: stoa %s: %s", name, m[1], wrong)
				}
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if count < 100 {
		t.Errorf("only %d commands are found", count)
	}
}

// checkCommand returns what is wrong with the words of a command, "" if nothing is. A word a|b|c names several commands.
func checkCommand(node *kong.Node, words []string) string {
	for _, word := range words {
		if flag, ok := strings.CutPrefix(word, "--"); ok {
			flag, _, _ = strings.Cut(flag, "=")
			known := slices.ContainsFunc(node.AllFlags(true), func(group []*kong.Flag) bool {
				return slices.ContainsFunc(group, func(f *kong.Flag) bool { return f.Name == flag })
			})
			if flag != "help" && !known {
				return "there is no flag --" + flag
			}
			continue
		}
		if len(node.Children) == 0 {
			continue
		}
		var next *kong.Node
		for name := range strings.SplitSeq(word, "|") {
			i := slices.IndexFunc(node.Children, func(n *kong.Node) bool { return n.Name == name })
			if i >= 0 {
				next = node.Children[i]
			} else if node.DefaultCmd == nil {
				return "there is no command " + name
			}
		}
		if next == nil {
			next = node.DefaultCmd
		}
		node = next
	}
	return ""
}
