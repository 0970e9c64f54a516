package faults_test

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"stoa/tenancy/db/dbtest"
)

// TestF11Zones runs replicas through the days on which Berlin's clocks are put forward and back, and stops them over
// these days. Each tick is one task, which acts once, at the times that docs/triggers.md defines. Only the database's
// clock is set to these days, because schedules use no other. In the long form the replicas' own clocks are also ten
// minutes off, and in the cases in which they run through a day one is killed at every due moment.
func TestF11Zones(t *testing.T) {
	t.Parallel()
	s := clusterOptions{nodes: 2, database: dbtest.NewPostgresURL(t)}
	if isFull {
		clocks := []string{"0", "600", "-600"}
		s.nodes, s.build, s.env = 3, skewedBuild, func(n int) []string { return []string{"STOA_FAULTS_CLOCK=" + clocks[n]} }
	} else {
		reportSkipped(t, "replicas that live through the change of the clocks; make faults does it")
	}
	(&cluster{T: t, database: s.database}).setDatabaseTime(parseTime(t, "2024-03-31T01:40:00+01:00"))
	c := startCluster(t, s)
	c.createApp("zoned", c.zonedConfig(map[string]string{
		"daily": "30 2 * * *", "several": "15,45 2 * * *", "edge": "0 2,3 * * *", "some": "30 1-3 * * *", "hourly": "30 * * * *", "often": "*/30 * * * *",
	}))
	reader := &client{baseURL: c.nodes[0].baseURL, token: c.createAPIKey("zoned"), http: c.client} // a token of those days would have expired
	c.waitForSchedules(6)
	for _, x := range []struct {
		name, from string
		moments    []string // times that the replicas run through
		// The time of their restart if they are stopped from the beginning.
		until string
		want  string
	}{
		{
			name: "forward", from: "2024-03-31T01:40:00+01:00",
			moments: []string{"2024-03-31T03:00:00+02:00", "2024-03-31T03:30:00+02:00", "2024-04-01T02:30:00+02:00"},
			want: `daily 31 03:00 +02, several 31 03:00 +02, edge 31 03:00 +02, some 31 03:00 +02, often 31 03:00 +02,
				some 31 03:30 +02, hourly 31 03:30 +02, often 31 03:30 +02,
				several 01 02:15 +02, edge 01 02:00 +02, some 01 01:30 +02, hourly 01 01:30 +02, often 01 02:00 +02,
				daily 01 02:30 +02, some 01 02:30 +02, hourly 01 02:30 +02, often 01 02:30 +02`,
		},
		{
			name: "back", from: "2024-10-27T02:10:00+02:00",
			moments: []string{"2024-10-27T02:30:00+02:00", "2024-10-27T02:00:00+01:00", "2024-10-27T02:30:00+01:00", "2024-10-27T03:30:00+01:00"},
			want: `several 27 02:15 +02, daily 27 02:30 +02, some 27 02:30 +02, hourly 27 02:30 +02, often 27 02:30 +02,
				several 27 02:45 +02, often 27 02:00 +01, hourly 27 02:30 +01, often 27 02:30 +01,
				edge 27 03:00 +01, often 27 03:00 +01, some 27 03:30 +01, hourly 27 03:30 +01, often 27 03:30 +01`,
		},
		{
			name: "forward while all are down", from: "2025-03-30T01:40:00+01:00", until: "2025-03-30T03:40:00+02:00",
			want: `daily 30 03:00 +02, several 30 03:00 +02, edge 30 03:00 +02, some 30 03:30 +02, hourly 30 03:30 +02, often 30 03:30 +02`,
		},
		{
			name: "back while all are down", from: "2025-10-26T02:20:00+02:00", until: "2025-10-26T02:40:00+01:00",
			want: `daily 26 02:30 +02, several 26 02:45 +02, some 26 02:30 +02, hourly 26 02:30 +01, often 26 02:30 +01`,
		},
	} {
		if x.until == "" && !isFull {
			continue
		}
		from := parseTime(t, x.from)
		c.setDatabaseTime(from)
		c.waitUntilIdle()
		if x.until != "" {
			for _, n := range c.nodes {
				n.killProcess()
			}
			c.setDatabaseTime(parseTime(t, x.until))
			runConcurrently(len(c.nodes), func(i int) {
				if err := c.nodes[i].startProcess(); err != nil {
					t.Error(err)
				}
			})
			c.waitUntilIdle()
		}
		for i, text := range x.moments {
			at := parseTime(t, text)
			c.setDatabaseTime(at.Add(-10 * time.Minute))
			c.waitUntilIdle() // missed ticks are started
			c.setDatabaseTime(at.Add(-time.Second))
			c.waitWithin(setupTimeout, "the moment comes", func() bool { return c.databaseTime().After(at) })
			n := c.nodes[i%len(c.nodes)]
			n.killProcess()
			n.restartProcess()
			c.waitUntilIdle()
		}
		want := strings.FieldsFunc(x.want, func(r rune) bool { return strings.ContainsRune(",\n\t", r) })
		for i := range want {
			want[i] = strings.TrimSpace(want[i])
		}
		want = slices.DeleteFunc(want, func(s string) bool { return s == "" })
		slices.Sort(want)
		if diff := cmp.Diff(want, c.listActedTicks(from)); diff != "" {
			t.Errorf("%s: the ticks (-want +got):\n%s", x.name, diff)
		}
		reportf(t, "%s: %d ticks, each one task", x.name, len(want))
	}
	var all, ended struct {
		Total int `json:"total_size"`
	}
	c.requireNoError(reader.requestJSON(t.Context(), http.MethodGet, "/tasks", nil, &all))
	c.requireNoError(reader.requestJSON(t.Context(), http.MethodGet, "/tasks?status=completed", nil, &ended))
	if n := len(c.listActedTicks(time.Time{})); all.Total != n || ended.Total != n {
		t.Errorf("%d ticks have acted, of %d tasks of which %d completed", n, all.Total, ended.Total)
	}
}

// zonedConfig returns the configuration of an app whose agents have schedules in the time zone of Berlin. Each tick
// acts on the recorder under the name of its agent and its time.
func (c *cluster) zonedConfig(crons map[string]string) string {
	var llms, agents strings.Builder
	for agent, cron := range crons {
		fmt.Fprintf(&llms, `
  %[1]s:
    provider: scripted
    script:
      - when: {text: "^It is (?P<at>\\S+)\\.$"}
        then: [{call: {tool: record, arguments: {url: "%[2]s/%[1]s/{{at}}", method: POST}}}]
      - then: [{say: "done"}]`, agent, c.tools.URL)
		fmt.Fprintf(&agents, "\n  %[1]s: {llm: %[1]s, tools: [record], trigger: {type: schedule, cron: %[2]q, timezone: Europe/Berlin}}", agent, cron)
	}
	return "llms:" + llms.String() + "\ntools:\n  record: {type: function, handler: http_request, idempotent: true}\nagents:" + agents.String() + "\n"
}

// listActedTicks returns the ticks after a time that have acted, once for each task.
func (c *cluster) listActedTicks(after time.Time) []string {
	c.Helper()
	var ticks []string
	for _, name := range c.tools.listTaskEffects() {
		agent, text, _ := strings.Cut(name, "/")
		if at := parseTime(c, text); at.After(after) {
			ticks = append(ticks, agent+" "+at.Format("02 15:04 -07"))
		}
	}
	slices.Sort(ticks)
	return ticks
}

func parseTime(t testing.TB, text string) time.Time {
	t.Helper()
	at, err := time.Parse(time.RFC3339, text)
	if err != nil {
		t.Fatal(err)
	}
	return at
}

// databaseTime returns the time of the database's clock.
func (c *cluster) databaseTime() time.Time {
	c.Helper()
	return time.UnixMicro(c.querySQL("SELECT stoa_now()")[0][0].(int64))
}

// setDatabaseTime sets the database's clock to a time, from which it continues.
func (c *cluster) setDatabaseTime(at time.Time) {
	c.Helper()
	c.querySQL(fmt.Sprintf(`CREATE OR REPLACE FUNCTION stoa_now() RETURNS BIGINT LANGUAGE sql STABLE PARALLEL SAFE AS
		$$ SELECT CAST(extract(epoch FROM now()) * 1000000 AS BIGINT) + CAST(%d AS BIGINT) $$`, time.Until(at).Microseconds()))
}

// waitUntilIdle waits until no tick is due and no run of an active app is running or queued: the clock may jump then.
func (c *cluster) waitUntilIdle() {
	c.Helper()
	c.waitWithin(40*time.Second, "all ticks are settled and their tasks at rest", func() bool {
		return c.querySQL(`SELECT (SELECT COUNT(*) FROM schedule WHERE next_at <= stoa_now() OR held_until > stoa_now())
			+ (SELECT COUNT(*) FROM run r JOIN app a ON a.tenant = r.tenant WHERE r.state IN ('pending', 'running') AND a.status = 'active')`)[0][0].(int64) == 0
	})
}
