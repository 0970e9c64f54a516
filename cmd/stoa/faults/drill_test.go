package faults_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"stoa/cmd/stoa/stoatest"
)

// restoreMethod is a way to back up and restore the database of a cluster.
type restoreMethod struct {
	name string
	// start starts the cluster of a drill.
	start func(t *testing.T) *drill
	// backUp takes the backup while the cluster serves; restore puts it in the place of the database of a killed one.
	backUp, restore func(d *drill)
	// pointInTime means that the state of a later moment, d.until, can be restored.
	pointInTime bool
}

var restoreMethods = []restoreMethod{
	{"sqlite", startFileDrill, (*drill).backUpFile, (*drill).restoreFile, false},
	{"dump", startDumpDrill, (*drill).dumpDatabase, (*drill).restoreDump, false},
	{"archive", startArchiveDrill, (*drill).copyCluster, (*drill).restorePointInTime, true},
}

// drill is a cluster whose database is backed up and restored.
type drill struct {
	*cluster
	pg      *postgresServer // nil on SQLite
	folder  string          // of the backup
	backup  string          // its file
	archive string          // the folder of PostgreSQL's archived log
	until   time.Time       // the moment that is restored, of a method with pointInTime
	library *client         // of an app with documents
	loads   []*loadGenerator
	books   sync.Map // counters (*atomic.Int64) of countBooks
}

// TestRestoreDrill backs up the database of a cluster under load, continues, kills every process, and restores the backup. What
// was acknowledged before the restored moment is there: tasks, documents, usage, credits, audit trail. The balances of budgets and
// accounts are the sums of their rows, the chains of the trail are unbroken, tasks that were at work go on, and a tool call
// whose outcome the backup does not have is not repeated. What happened later is lost: its amount, and the time that the restore took, are
// printed.
func TestRestoreDrill(t *testing.T) {
	t.Parallel()
	for _, m := range restoreMethods {
		t.Run(m.name, func(t *testing.T) {
			t.Parallel()
			d := m.start(t)
			d.setUp()
			d.runLoad(d.loadTime()) // everything of this load is in the backup
			var work *openWork
			if !m.pointInTime {
				work = d.startWork()
			}
			stop := d.startLoad()
			begun := time.Now()
			m.backUp(d)
			reportf(t, "the backup took %v under load, in which %d messages were acknowledged", time.Since(begun).Round(time.Millisecond), d.loads[1].history.countMessages())
			sleepContext(t.Context(), d.loadTime()/2)
			lost := begun
			if m.pointInTime {
				stop() // everything of this load is restored as well
				work = d.startWork()
				d.until = d.databaseTime()
				lost = d.until
				sleepContext(t.Context(), 100*time.Millisecond)
				stop = d.startLoad()
			}
			work.end()
			d.makeMistake(m)
			sleepContext(t.Context(), d.loadTime()/2)
			for _, n := range d.nodes {
				n.killProcess()
			}
			killed := time.Now()
			stop()
			former := d.readFacts()

			begun = time.Now()
			m.restore(d)
			d.checkFacts(former)
			d.checkBooks()
			d.checkBudgets()
			for _, n := range d.nodes {
				n.restartProcess()
			}
			var first task
			d.waitWithin(setupTimeout, "a message is answered", func() bool {
				var err error
				first, err = d.nodes[0].sendMessage(t.Context(), message{text: "first after the restore"})
				return err == nil
			})
			reportf(t, "RTO: a message is answered %v after the restore was begun", time.Since(begun).Round(10*time.Millisecond))
			if first.Status.State != "completed" {
				t.Errorf("the first message is %s", first.Status.State)
			}
			d.checkLoads(m, killed.Sub(lost))
			work.check()
			d.checkMistake()
			d.checkDocuments()
			d.checkUsage()
			if out, err := d.runStoa("audit", "verify", "--server", d.nodes[0].baseURL); err != nil {
				t.Errorf("the trail: %v\n%s", err, out)
			}
			d.checkReservations()
			for _, n := range d.nodes {
				if err := n.SignalAndWait(syscall.SIGTERM); err != nil {
					t.Error(err)
				}
			}
			d.checkBooks()
			d.checkBudgets()
		})
	}
}

// loadTime is how long each part of the load lasts.
func (d *drill) loadTime() time.Duration {
	if isFull {
		return 15 * time.Second
	}
	return time.Second
}

// setUp creates prices, budgets, an API key, and an app with documents.
func (d *drill) setUp() {
	d.Helper()
	admin := d.nodes[0].adminClient()
	post := func(path string, body map[string]any) {
		d.Helper()
		d.requireNoError(admin.requestJSON(d.Context(), http.MethodPost, path, body, nil))
	}
	post("/admin/prices", map[string]any{
		"version": "v1", "currency": "USD", "effective_from": "2020-01-01T00:00:00Z",
		"items": []any{map[string]any{"kind": "charge", "meter": "model_calls", "model": "*", "per": 1, "amount": 7}},
	})
	post("/admin/apps/acme/budgets", map[string]any{"name": "calls", "unit": "calls", "amount": 1_000_000, "window": "total", "hard": true})
	post("/admin/apps/acme/budgets", map[string]any{"name": "money", "unit": "money", "currency": "USD", "amount": 1_000_000_000, "window": "total", "hard": true})
	post("/admin/apps", map[string]any{"name": "library", "config": `
llms: {script: {provider: scripted}}
agents: {assistant: {llm: script}}
embedders: {local: {provider: hashing}}
document_stores:
  library: {source: {type: upload}, embedder: local, chunking: {size: 200, min_size: 20}}
`})
	d.library = &client{baseURL: d.nodes[0].baseURL, token: d.createToken("library", "ana"), http: d.client}
	sleepContext(d.Context(), 2*time.Second) // until every process has prices and budgets
}

// runLoad is startLoad for a time.
func (d *drill) runLoad(length time.Duration) {
	stop := d.startLoad()
	sleepContext(d.Context(), length)
	stop()
	d.waitWithin(time.Minute, "the documents are indexed", func() bool { return d.countWaiting() == 0 })
}

// loadNumbers is how many numbers each load has for its messages, credits and documents.
const loadNumbers = 100_000

// startLoad starts clients that send messages, grant credits, create keys and upload documents, until stop is called.
func (d *drill) startLoad() (stop func()) {
	l := &loadGenerator{cluster: d.cluster, pickClient: d.randomClient, maxAttempts: 1, kinds: []string{"hello %s", "long %s", "repeat %s"}}
	first := loadNumbers * len(d.loads) // each message has a word of its own
	l.count = first
	d.loads = append(d.loads, l)
	l.startClients(newRand(d.T), 4)
	ctx, cancel := context.WithCancel(d.Context())
	var books sync.WaitGroup
	books.Go(func() {
		d.keepBooks(d.Context(), first, 0)            // also where the load is over before that
		for i := 1; ctx.Err() == nil && i < 30; i++ { // an app has at most 100 open credits
			d.keepBooks(ctx, first, i)
			sleepContext(ctx, d.loadTime()/30)
		}
	})
	return sync.OnceFunc(func() {
		cancel()
		books.Wait()
		l.stopClients()
	})
}

// countBooks returns the counter of what keepBooks has written of a kind, of the load that begins with the message first.
func (d *drill) countBooks(kind string, first int) *atomic.Int64 {
	n, _ := d.books.LoadOrStore(fmt.Sprint(kind, first), &atomic.Int64{})
	return n.(*atomic.Int64)
}

// keepBooks grants the i-th credit of the load that begins with the message first; with some of them it creates a key and
// uploads a document.
func (d *drill) keepBooks(ctx context.Context, first, i int) {
	admin := d.nodes[0].adminClient()
	write := func(kind string, f func() error) {
		if err := f(); err == nil {
			d.countBooks(kind, first).Add(1)
		} else if ctx.Err() == nil && statusOf(err) != 0 {
			d.Errorf("%s %d: %v", kind, first+i, err)
		}
	}
	write("credit", func() error {
		body := map[string]any{"amount": first + i + 1, "currency": "USD"}
		return admin.requestJSON(ctx, http.MethodPost, "/admin/apps/acme/credits", body, nil, "Idempotency-Key", fmt.Sprintf("credit-%d", first+i))
	})
	if i%6 != 0 {
		return
	}
	write("key", func() error {
		return admin.requestJSON(ctx, http.MethodPost, "/admin/apps/acme/keys", map[string]any{"name": fmt.Sprintf("key-%d", first+i)}, nil)
	})
	if first >= 2*loadNumbers {
		return // the app may be deleted during this load
	}
	write("document", func() error {
		text := strings.Repeat(fmt.Sprintf("Section %d of the handbook says what to do.\n\n", first+i), 12)
		return d.library.requestJSON(ctx, http.MethodPut, fmt.Sprintf("/v1/document-stores/library/documents/%d.txt", first+i), text, nil, "Content-Type", "text/plain")
	})
}

// openWork is tasks that are at work or wait at the moment that is restored.
type openWork struct {
	d                       *drill
	answered, called, asked string // tasks: in a model call, in a tool call, waiting for a decision
	answer, effect          *requestBarrier
}

// startWork starts a task that waits for its model, one whose tool call has taken effect and is not answered, and one that
// waits for a decision.
func (d *drill) startWork() *openWork {
	d.Helper()
	n := d.nodes[0]
	w := &openWork{d: d, answer: d.model.barriers.blockRequests("hello"), effect: d.tools.barriers.blockRequests("once")}
	w.answered = d.startTaskAt(n, message{agent: "modelled", text: "hello"})
	w.called = d.startTaskAt(n, message{agent: "modelled", text: "once"})
	asked, err := n.sendMessage(d.Context(), message{text: "careful approved"})
	d.requireNoError(err)
	w.asked = asked.TaskID
	w.answer.waitForRequest(d.T)
	w.effect.waitForRequest(d.T)
	return w
}

// end lets the tasks end after the moment that is restored.
func (w *openWork) end() {
	w.d.Helper()
	w.answer.releaseRequests()
	w.effect.releaseRequests()
	w.d.waitForState(w.d.nodes[0], "modelled", w.answered, "completed", 20*time.Second)
	// A machine under load may have lost the lease meanwhile: then it is asked whether to run the call again.
	_, err := w.d.nodes[0].waitSettled(w.d.Context(), "modelled", w.called)
	w.d.requireNoError(err)
}

// check requires that the tasks go on in the restored database as they stood there.
func (w *openWork) check() {
	d, n := w.d, w.d.nodes[len(w.d.nodes)-1]
	d.Helper()
	d.waitForState(n, "modelled", w.answered, "completed", rescueTimeout)
	for _, x := range []struct{ agent, task, kind, outcome, state string }{
		{"modelled", w.called, "rerun", "reject", "rejected"},
		{"assistant", w.asked, "call", "approve", "completed"},
	} {
		waiting, err := n.listApprovals(d.Context(), d.waitForState(n, x.agent, x.task, "input_required", rescueTimeout))
		d.requireNoError(err)
		if len(waiting) != 1 || (waiting[0].Kind == "rerun") != (x.kind == "rerun") {
			d.Fatalf("%s: what waits is %+v, want one %s", x.task, waiting, x.kind)
		}
		d.requireNoError(n.decideCall(d.Context(), x.outcome, x.task, waiting[0].CallID))
		d.waitForState(n, x.agent, x.task, x.state, rescueTimeout)
	}
	for _, name := range []string{"once", "approved"} {
		if effects := d.tools.effectsNamed(name); len(effects) != 1 {
			d.Errorf("the call %s had %d effects, want 1", name, len(effects))
		}
	}
}

// revokedKey is the name of the key that makeMistake deletes.
const revokedKey = "key-0"

// makeMistake changes, after the moment that is restored, what the restore undoes: it deletes a key, and where a moment can
// be chosen an app, as an operator does by mistake.
func (d *drill) makeMistake(m restoreMethod) {
	d.Helper()
	var list struct{ Keys []struct{ ID, Name string } }
	admin := d.nodes[0].adminClient()
	d.requireNoError(admin.requestJSON(d.Context(), http.MethodGet, "/admin/apps/acme/keys", nil, &list))
	for _, k := range list.Keys {
		if k.Name == revokedKey {
			d.requireNoError(admin.requestJSON(d.Context(), http.MethodDelete, "/admin/apps/acme/keys/"+k.ID, nil, nil))
		}
	}
	if d.countRows("SELECT COUNT(*) FROM api_key WHERE name = '"+revokedKey+"'") != 0 {
		d.Fatal("the key was not deleted")
	}
	if m.pointInTime {
		d.requireNoError(admin.requestJSON(d.Context(), http.MethodDelete, "/admin/apps/library", nil, nil))
	}
}

// checkMistake requires that the deleted key is there again: docs/operations/backup.md names what a restore undoes.
func (d *drill) checkMistake() {
	d.Helper()
	if d.countRows("SELECT COUNT(*) FROM api_key WHERE name = '"+revokedKey+"'") != 1 {
		d.Error("a key that was deleted later is not there")
	}
}

// factQueries select the rows that are inserted and never changed, by table.
var factQueries = map[string]string{
	"usage":          `SELECT task, key, kind, at, model_calls, input_tokens, output_tokens, charge FROM usage WHERE tenant = (SELECT tenant FROM app WHERE name = 'acme')`,
	"event":          `SELECT task, seq, at, kind, body FROM event WHERE tenant = (SELECT tenant FROM app WHERE name = 'acme')`,
	"credit":         `SELECT app, id, amount, currency, created_at FROM credit`,
	"ledger_entry":   `SELECT app, id, kind, currency, at FROM ledger_entry`,
	"ledger_posting": `SELECT app, entry, account, amount FROM ledger_posting`,
	"audit":          `SELECT id, at, actor, action, app_id, detail FROM audit`,
}

// readFacts returns the rows of factQueries as text, by table.
func (d *drill) readFacts() map[string]map[string]bool {
	d.Helper()
	facts := map[string]map[string]bool{}
	for table, query := range factQueries {
		facts[table] = map[string]bool{}
		for _, row := range d.querySQL(query) {
			facts[table][fmt.Sprint(row...)] = true
		}
	}
	return facts
}

// checkFacts requires that the restored database has only rows of the former one.
func (d *drill) checkFacts(former map[string]map[string]bool) {
	d.Helper()
	restored := d.readFacts()
	for _, table := range slices.Sorted(maps.Keys(restored)) {
		foreign := 0
		for row := range restored[table] {
			if !former[table][row] {
				foreign++
			}
		}
		if foreign > 0 || len(restored[table]) == 0 {
			d.Errorf("%s: %d rows are restored, %d of them were not in the former database", table, len(restored[table]), foreign)
		}
		reportf(d.T, "%s: %d of %d rows are restored", table, len(restored[table]), len(former[table]))
	}
}

// checkBooks requires that each entry of the ledger sums to zero, each credit has one, and their numbers have no gap.
func (d *drill) checkBooks() {
	d.Helper()
	for _, x := range []struct{ what, query string }{
		{"entries that do not sum to zero", `SELECT COUNT(*) FROM (SELECT 1 FROM ledger_posting GROUP BY app, entry HAVING SUM(amount) <> 0) x`},
		{"credits without an entry, or with several", `SELECT COUNT(*) FROM credit c WHERE (SELECT COUNT(*) FROM ledger_entry e WHERE e.app = c.app AND e.credit = c.id AND e.kind = 'grant') <> 1`},
		{"credits whose posting has another amount", `SELECT COUNT(*) FROM credit c JOIN ledger_entry e ON e.app = c.app AND e.credit = c.id AND e.kind = 'grant'
			WHERE NOT EXISTS (SELECT 1 FROM ledger_posting p WHERE p.app = e.app AND p.entry = e.id AND ABS(p.amount) = c.amount)`},
		{"ledgers with gaps", `SELECT COUNT(*) FROM ledger l WHERE l.entries <> (SELECT COUNT(*) FROM ledger_entry e WHERE e.app = l.app)
			OR l.entries <> (SELECT COALESCE(MAX(e.id), 0) FROM ledger_entry e WHERE e.app = l.app)`},
	} {
		if n := d.countRows(x.query); n != 0 {
			d.Errorf("%d %s", n, x.what)
		}
	}
}

// checkBudgets requires that the balance of each budget is what was used, as stoa billing check computes it.
func (d *drill) checkBudgets() {
	d.Helper()
	if out, err := d.runStoa("billing", "check", "--database", d.database); err != nil || !strings.Contains(out, "all balances are what was used") {
		d.Errorf("the budgets: %v\n%s", err, out)
	}
}

// checkReservations waits, in the long form, until what calls of killed processes had reserved has lapsed.
func (d *drill) checkReservations() {
	d.Helper()
	if !isFull {
		reportSkipped(d.T, "that the reservations of dead processes lapse: it takes most of a minute")
		return
	}
	d.waitWithin(90*time.Second, "nothing is reserved", func() bool { return d.countRows("SELECT COUNT(*) FROM reservation") == 0 })
}

// checkLoads requires that everything that was acknowledged before the restored moment is there, and prints how much of what
// came later is not. age is the time between that moment and the crash.
func (d *drill) checkLoads(m restoreMethod, age time.Duration) {
	d.Helper()
	covered := 1
	if m.pointInTime {
		covered = 2
	}
	there := map[string]bool{}
	for _, row := range d.querySQL("SELECT id FROM task") {
		there[row[0].(string)] = true
	}
	h, lost, acknowledged := &history{}, 0, 0
	for i, l := range d.loads {
		for _, s := range l.history.messages {
			switch {
			case s.task == "":
			case i < covered || there[s.task]:
				h.messages = append(h.messages, s) // checkHistory finds those that are not there
				acknowledged++
			default:
				lost++
				acknowledged++
			}
		}
		if i >= covered {
			continue
		}
		for kind, query := range map[string]string{
			"credit":   `SELECT COUNT(*) FROM credit WHERE amount > %d AND amount <= %d`,
			"key":      `SELECT COUNT(*) FROM api_key WHERE CAST(SUBSTR(name, 5) AS INTEGER) >= %d AND CAST(SUBSTR(name, 5) AS INTEGER) < %d AND name LIKE 'key-%%'`,
			"document": `SELECT COUNT(*) FROM document WHERE CAST(REPLACE(id, '.txt', '') AS INTEGER) >= %d AND CAST(REPLACE(id, '.txt', '') AS INTEGER) < %d`,
		} {
			first := i * loadNumbers
			if got, want := d.countRows(fmt.Sprintf(query, first, first+loadNumbers)), int(d.countBooks(kind, first).Load()); got < want || want == 0 {
				d.Errorf("load %d: %d of the kind %s are there, %d were acknowledged", i+1, got, kind, want)
			}
		}
	}
	reportf(d.T, "RPO: the restored state is %v older than the crash; %d of %d acknowledged messages are lost, none of those before it", age.Round(10*time.Millisecond), lost, acknowledged)
	d.checkHistory(h, d.nodes[0], time.Minute)
}

// checkDocuments waits until the restored documents are indexed and checks their rows, and that they are found.
func (d *drill) checkDocuments() {
	d.Helper()
	d.waitWithin(time.Minute, "the documents are indexed", func() bool { return d.countWaiting() == 0 })
	d.checkLibrary(d.countRows("SELECT COUNT(*) FROM document"))
	var found struct{ Results []struct{ Document string } }
	body := map[string]any{"query": "Section 0 of the handbook"}
	d.requireNoError(d.library.requestJSON(d.Context(), http.MethodPost, "/v1/document-stores/library:search", body, &found))
	if len(found.Results) == 0 {
		d.Error("the search finds no document")
	}
}

// checkUsage requires that the totals that the API shows are the sums of the rows.
func (d *drill) checkUsage() {
	d.Helper()
	var answer struct {
		Totals struct {
			ModelCalls int64 `json:"model_calls"`
			Charge     int64
		}
	}
	d.waitWithin(20*time.Second, "the totals of the usage are the sums of its rows", func() bool {
		d.requireNoError(d.nodes[0].adminClient().requestJSON(d.Context(), http.MethodGet, "/admin/apps/acme/usage?from=2020-01-01", nil, &answer))
		calls := d.countRows(`SELECT CAST(SUM(model_calls) AS BIGINT) FROM usage WHERE tenant = (SELECT tenant FROM app WHERE name = 'acme')`)
		charge := d.countRows(`SELECT CAST(SUM(charge) AS BIGINT) FROM usage WHERE tenant = (SELECT tenant FROM app WHERE name = 'acme')`)
		return answer.Totals.ModelCalls == int64(calls) && answer.Totals.Charge == int64(charge) && charge == 7*calls && calls > 0
	})
}

// runStoa runs a command with the secrets of the cluster and env, and returns what it wrote.
func (d *drill) runStoa(args ...string) (string, error) { return d.runStoaWith(nil, args...) }

func (d *drill) runStoaWith(env []string, args ...string) (string, error) {
	cmd := exec.CommandContext(d.Context(), plainBuild.programPath(d.T), args...)
	cmd.Dir = d.folder
	cmd.Env = stoatest.Environment(env...)
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// requireStoa is runStoa for a command that must succeed.
func (d *drill) requireStoa(args ...string) string {
	d.Helper()
	out, err := d.runStoa(args...)
	if err != nil {
		d.Fatalf("stoa %v: %v\n%s", args, err, out)
	}
	return out
}

// requireRefusal requires that a command fails with a message that contains want.
func (d *drill) requireRefusal(out string, err error, want string) {
	d.Helper()
	var exit *exec.ExitError
	if !errors.As(err, &exit) || !strings.Contains(out, want) {
		d.Errorf("got %v with\n%s\nwant a refusal with %q", err, out, want)
	}
}

func startFileDrill(t *testing.T) *drill {
	d := &drill{cluster: startCluster(t, clusterOptions{sqlite: true, args: longStaleArgs}), folder: t.TempDir()}
	d.backup = filepath.Join(d.folder, "stoa.backup")
	return d
}

func (d *drill) backUpFile() {
	d.Helper()
	out := d.requireStoa("backup", d.backup, "--database", d.database)
	line, _, _ := strings.Cut(strings.ReplaceAll(out, d.folder+"/", ""), "\n")
	reportf(d.T, "%s", line)
	// The likeliest mistake: to restore while the server runs.
	out, err := d.runStoa("restore", d.backup, "--database", d.database, "--force")
	d.requireRefusal(out, err, "is in use by another process: stop it")
}

func (d *drill) restoreFile() {
	d.Helper()
	out, err := d.runStoa("restore", d.backup, "--database", d.database)
	d.requireRefusal(out, err, "exists: --force replaces it")
	for key, want := range map[string]string{
		"STOA_MASTER_KEY=BBECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=": "STOA_MASTER_KEY lacks: add the key of the backup's time",
		"STOA_MASTER_KEY=": "there is none: put the stoa.secrets of the backup's time at",
	} {
		out, err = d.runStoaWith([]string{key}, "restore", d.backup, "--database", d.database, "--force")
		d.requireRefusal(out, err, want)
	}
	d.requireStoa("restore", d.backup, "--database", d.database, "--force")
}

func startDumpDrill(t *testing.T) *drill { return startPostgresDrill(t, newPostgres(t)) }

// startPostgresDrill starts a cluster on a server of its own, with the logins of least privilege that stoa migrate roles
// creates.
func startPostgresDrill(t *testing.T, pg *postgresServer) *drill {
	d := &drill{cluster: &cluster{T: t}, pg: pg, folder: t.TempDir()}
	pg.createDatabase("stoa")
	d.createRoles()
	login := pg.databaseURL("stoa_login", "stoa")
	d.requireStoa("migrate", "up", "--database", login, "--migrate-database", pg.databaseURL("stoa_owner", "stoa"))
	d.cluster = startCluster(t, clusterOptions{nodes: 2, database: login, adminURL: pg.databaseURL("postgres", "stoa"), args: []string{"--no-migrate"}})
	d.backup = filepath.Join(pg.dir, "stoa.dump")
	return d
}

// createRoles runs what stoa migrate roles prints in the database stoa.
func (d *drill) createRoles() {
	d.Helper()
	d.pg.execSQL("stoa", d.requireStoa("migrate", "roles"))
}

func (d *drill) dumpDatabase() {
	d.Helper()
	for login, want := range map[string]string{"stoa_owner": "row-level security", "stoa_login": "permission denied"} {
		out, err := d.pg.tryProgram("pg_dump", "--format=custom", "--file", filepath.Join(d.pg.dir, login), d.pg.databaseURL(login, "stoa"))
		d.requireRefusal(out, err, want)
	}
	d.pg.runProgram("pg_dump", "--format=custom", "--file", d.backup, d.pg.databaseURL("stoa_backup", "stoa"))
	if n := d.countRows("SELECT COUNT(*) FROM pg_sequences"); n != 0 {
		d.Errorf("the schema has %d sequences: does a dump have their state?", n)
	}
	if n := d.countRows("SELECT COUNT(*) FROM pg_extension WHERE extname <> 'plpgsql'"); n != 0 {
		d.Errorf("the schema needs %d extensions: docs/operations/backup.md says none", n)
	}
}

func (d *drill) restoreDump() {
	d.Helper()
	d.pg.execSQL("postgres", "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = 'stoa'; ALTER DATABASE stoa RENAME TO stoa_lost")
	d.pg.execSQL("postgres", "CREATE DATABASE stoa")
	d.createRoles()
	d.pg.runProgram("pg_restore", "--no-owner", "--exit-on-error", "--dbname", d.pg.databaseURL("stoa_owner", "stoa"), d.backup)
}

func startArchiveDrill(t *testing.T) *drill {
	archive := t.TempDir()
	for folder := archive; folder != filepath.Dir(os.TempDir()) && folder != os.TempDir(); folder = filepath.Dir(folder) {
		if err := os.Chmod(folder, 0o777); err != nil { //nolint:gosec // PostgreSQL runs as another user
			t.Fatal(err)
		}
	}
	pg := newPostgres(t, "-c wal_level=replica", "-c archive_mode=on", fmt.Sprintf(`-c archive_command="cp %%p %s/%%f"`, archive))
	d := startPostgresDrill(t, pg)
	d.archive = archive
	return d
}

// copyCluster copies the files of the server while it works, as the start of every restore to a later moment.
func (d *drill) copyCluster() {
	d.Helper()
	d.pg.runProgram("pg_basebackup", "--dbname", d.pg.databaseURL("postgres", ""), "--pgdata", filepath.Join(d.pg.dir, "base"), "--checkpoint=fast", "--wal-method=none")
}

// databaseTime is the time of the database, by which a moment to restore is chosen.
func (d *drill) databaseTime() time.Time {
	d.Helper()
	return d.querySQL("SELECT clock_timestamp()")[0][0].(time.Time)
}

// restorePointInTime restores the copy and the archived log up to d.until, after the server has crashed and its files are lost.
func (d *drill) restorePointInTime() {
	d.Helper()
	written := d.querySQL("SELECT pg_walfile_name(pg_switch_wal())")[0][0] // as archive_timeout does after a while
	d.waitWithin(setupTimeout, "the log is archived", func() bool {
		return d.querySQL("SELECT COALESCE(last_archived_wal >= $1, false) FROM pg_stat_archiver", written)[0][0].(bool)
	})
	d.pg.stopServer("immediate")
	d.requireNoError(os.RemoveAll(d.pg.dataDir()))
	d.requireNoError(os.Rename(filepath.Join(d.pg.dir, "base"), d.pg.dataDir()))
	settings, err := os.OpenFile(filepath.Join(d.pg.dataDir(), "postgresql.auto.conf"), os.O_APPEND|os.O_WRONLY, 0)
	d.requireNoError(err)
	_, err = fmt.Fprintf(settings, "restore_command = 'cp %s/%%f %%p'\nrecovery_target_time = '%s'\nrecovery_target_action = 'promote'\n",
		d.archive, d.until.UTC().Format("2006-01-02 15:04:05.000000+00"))
	d.requireNoError(errors.Join(err, settings.Close()))
	d.requireNoError(os.WriteFile(filepath.Join(d.pg.dataDir(), "recovery.signal"), nil, 0o644)) //nolint:gosec // PostgreSQL runs as another user
	d.pg.startServer()
	d.waitWithin(time.Minute, "PostgreSQL has recovered", func() bool {
		conn, err := pgx.Connect(d.Context(), d.adminURL)
		if err != nil {
			return false // it accepts no connections yet
		}
		defer conn.Close(context.Background())
		recovers := true
		return conn.QueryRow(d.Context(), "SELECT pg_is_in_recovery()").Scan(&recovers) == nil && !recovers
	})
}
