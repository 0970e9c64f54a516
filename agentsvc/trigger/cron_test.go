package trigger_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"stoa/agentsvc/trigger"
)

func mustParseCron(t testing.TB, text, zone string) *trigger.Cron {
	t.Helper()
	c, err := trigger.ParseCron(text, zone)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func mustParseTime(t testing.TB, text string) time.Time {
	t.Helper()
	at, err := time.Parse(time.RFC3339, text)
	if err != nil {
		t.Fatal(err)
	}
	return at
}

// TestNext checks ticks around clock changes in both directions.
func TestNext(t *testing.T) {
	t.Parallel()
	const berlin, sydney, paulo, lord = "Europe/Berlin", "Australia/Sydney", "America/Sao_Paulo", "Australia/Lord_Howe"
	for _, c := range []struct {
		name, cron, zone, after string
		want                    string // in the zone's local time, with its offset
	}{
		{"every day", "30 9 * * *", "UTC", "2024-03-09T09:30:00Z", "2024-03-10T09:30:00Z 2024-03-11T09:30:00Z"},
		{"every ten minutes", "*/10 * * * *", "UTC", "2024-03-09T09:30:01Z", "2024-03-09T09:40:00Z 2024-03-09T09:50:00Z"},
		{"a name", "@daily", berlin, "2024-06-01T00:00:00Z", "2024-06-02T00:00:00+02:00"},
		{"day or weekday", "0 0 15 * MON", "UTC", "2024-07-09T00:00:00Z", "2024-07-15T00:00:00Z 2024-07-22T00:00:00Z"},
		{"sunday is 7 as well", "0 0 * * 7", "UTC", "2024-07-09T00:00:00Z", "2024-07-14T00:00:00Z"},
		{"leap day", "0 0 29 2 *", "UTC", "2096-03-01T00:00:00Z", "2104-02-29T00:00:00Z"},

		{"left out", "30 2 * * *", berlin, "2024-03-30T12:00:00Z", "2024-03-31T03:00:00+02:00 2024-04-01T02:30:00+02:00"},
		{"two that are left out are one", "15,45 2 * * *", berlin, "2024-03-30T12:00:00Z", "2024-03-31T03:00:00+02:00 2024-04-01T02:15:00+02:00"},
		{"left out, and the moment after", "0 2,3 * * *", berlin, "2024-03-30T12:00:00Z", "2024-03-31T03:00:00+02:00 2024-04-01T02:00:00+02:00"},
		{"a midnight that is left out", "0 0 * * *", paulo, "2018-11-03T12:00:00Z", "2018-11-04T01:00:00-02:00 2018-11-05T00:00:00-02:00"},
		{"half an hour that is left out", "15 2 * * *", lord, "2024-10-05T00:00:00Z", "2024-10-06T02:30:00+11:00 2024-10-07T02:15:00+11:00"},
		{"every hour, one left out", "0 * * * *", berlin, "2024-03-31T00:00:00Z", "2024-03-31T03:00:00+02:00 2024-03-31T04:00:00+02:00"},
		{"minutes of an hour that is left out", "*/20 * * * *", berlin, "2024-03-31T00:20:00Z", "2024-03-31T01:40:00+01:00 2024-03-31T03:00:00+02:00 2024-03-31T03:20:00+02:00"},

		{"twice", "30 2 * * *", berlin, "2024-10-26T12:00:00Z", "2024-10-27T02:30:00+02:00 2024-10-28T02:30:00+01:00"},
		{"asked for in between", "30 2 * * *", berlin, "2024-10-27T00:45:00Z", "2024-10-28T02:30:00+01:00"},
		{"asked for in the second", "30 2 * * *", berlin, "2024-10-27T01:10:00Z", "2024-10-28T02:30:00+01:00"},
		{"twice, in the south", "30 2 * * *", sydney, "2024-04-06T00:00:00Z", "2024-04-07T02:30:00+11:00 2024-04-08T02:30:00+10:00"},
		{"half an hour twice", "45 1 * * *", lord, "2024-04-06T00:00:00Z", "2024-04-07T01:45:00+11:00 2024-04-08T01:45:00+10:30"},
		{"every hour, one twice", "30 * * * *", berlin, "2024-10-26T23:45:00Z", "2024-10-27T02:30:00+02:00 2024-10-27T02:30:00+01:00 2024-10-27T03:30:00+01:00"},
		{"some hours, one twice", "0 1-3 * * *", berlin, "2024-10-26T22:00:00Z", "2024-10-27T01:00:00+02:00 2024-10-27T02:00:00+02:00 2024-10-27T03:00:00+01:00"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			k := mustParseCron(t, c.cron, c.zone)
			var got []string
			next := mustParseTime(t, c.after)
			for range strings.Count(c.want, " ") + 1 {
				next = k.Next(next)
				zone, _ := time.LoadLocation(c.zone)
				got = append(got, next.In(zone).Format(time.RFC3339))
			}
			if diff := cmp.Diff(strings.Fields(c.want), got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// TestLatest checks that the latest missed tick is found.
func TestLatest(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ name, cron, from, now, want string }{
		{"nothing but itself", "0 * * * *", "2024-05-01T10:00:00Z", "2024-05-01T10:00:01Z", "2024-05-01T10:00:00Z"},
		{"an hour of minutes", "* * * * *", "2024-05-01T10:00:00Z", "2024-05-01T11:00:30Z", "2024-05-01T11:00:00Z"},
		{"this very moment", "* * * * *", "2024-05-01T10:00:00Z", "2024-05-01T11:00:00Z", "2024-05-01T11:00:00Z"},
		{"years of minutes", "* * * * *", "2014-05-01T10:00:00Z", "2024-05-01T11:00:30Z", "2024-05-01T11:00:00Z"},
		{"a month of days", "0 9 * * *", "2024-05-01T09:00:00Z", "2024-06-01T08:00:00Z", "2024-05-31T09:00:00Z"},
		{"years of years", "0 0 1 1 *", "2014-01-01T00:00:00Z", "2024-06-01T08:00:00Z", "2024-01-01T00:00:00Z"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			began := time.Now()
			if got := mustParseCron(t, c.cron, "UTC").LatestTick(mustParseTime(t, c.from), mustParseTime(t, c.now)); !got.Equal(mustParseTime(t, c.want)) {
				t.Errorf("got %v, want %s", got, c.want)
			}
			if took := time.Since(began); took > 5*time.Second {
				t.Errorf("that took %v", took)
			}
		})
	}
}

// TestTicksIncrease checks for random schedules, zones and times that ticks ascend and that no tick lies between two.
func TestTicksIncrease(t *testing.T) {
	t.Parallel()
	zones := []string{"UTC", "Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "America/Sao_Paulo", "Asia/Kathmandu", "Africa/Casablanca", "Pacific/Apia"}
	rapid.Check(t, func(r *rapid.T) {
		field := func(name string, some ...string) string { return rapid.SampledFrom(append(some, "*")).Draw(r, name) }
		text := strings.Join([]string{
			field("minute", "0", "30", "*/15", "7,45"), field("hour", "0", "1", "2", "3", "0-4", "*/2", "23"), field("day", "1", "31"), "*", field("weekday", "SUN", "1-5"),
		}, " ")
		c, err := trigger.ParseCron(text, rapid.SampledFrom(zones).Draw(r, "zone"))
		if err != nil {
			r.Fatal(err)
		}
		from := time.Unix(rapid.Int64Range(1_200_000_000, 1_800_000_000).Draw(r, "from"), 0)
		var ticks []time.Time
		for next := from; len(ticks) < 12; {
			at := c.Next(next)
			if !at.After(next) {
				r.Fatalf("%s: after %v comes %v", c, next, at)
			}
			if between := next.Add(at.Sub(next) / 2); !c.Next(between).Equal(at) {
				r.Fatalf("%s: from %v the next is %v, and from %v it is %v", c, next, at, between, c.Next(between))
			}
			next, ticks = at, append(ticks, at)
		}
		if again, err := trigger.ParseCronSpec(c.String()); err != nil || !again.Next(from).Equal(ticks[0]) {
			r.Fatalf("%s is not itself when it is read again: %v", c, err)
		}
		if last := c.LatestTick(ticks[0], ticks[11]); !last.Equal(ticks[11]) {
			r.Fatalf("%s: the latest is %v, want %v", c, last, ticks[11])
		}
		if !slices.IsSortedFunc(ticks, time.Time.Compare) {
			r.Fatalf("%s: %v", c, ticks)
		}
	})
}

// TestParseCron checks the errors of invalid schedules.
func TestParseCron(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ cron, zone, want string }{
		{"* * *", "UTC", "cron: is no schedule of minute, hour, day, month and weekday: expected exactly 5 fields, found 3: [* * *]"},
		{"61 * * * *", "UTC", `cron: is no schedule of minute, hour, day, month and weekday: end of range (61) above maximum (59): "61"`},
		{"0 */5 * * * *", "UTC", "cron: has six fields: a schedule has five, minute, hour, day, month and weekday"},
		{"@every 10s", "UTC", "cron: must give times, not an interval: */10 * * * * is every ten minutes"},
		{"TZ=UTC", "UTC", "cron: contains a time zone: set timezone instead"},
		{"CRON_TZ=Asia/Tokyo 0 0 * * *", "UTC", "cron: contains a time zone: set timezone instead"},
		{"0 0 30 2 *", "UTC", "cron: matches no day within 10 years"},
		{"@reboot", "UTC", `cron: is no schedule of minute, hour, day, month and weekday: unrecognized descriptor: "@reboot"`},
		{"", "UTC", "cron: is no schedule of minute, hour, day, month and weekday: empty spec string"},
		{"0 0 * * *", "Berlin", `timezone: is no time zone such as Europe/Berlin: "Berlin"`},
		{"0 0 * * *", "Local", `timezone: is no time zone such as Europe/Berlin: "Local"`},
		{"0 0 * * *", "../etc/passwd", `timezone: is no time zone such as Europe/Berlin: "../etc/passwd"`},
		{"99 * * * *", "Mars/X", `timezone: is no time zone such as Europe/Berlin: "Mars/X"
cron: is no schedule of minute, hour, day, month and weekday: end of range (99) above maximum (59): "99"`},
	} {
		if _, err := trigger.ParseCron(c.cron, c.zone); err == nil || err.Error() != c.want {
			t.Errorf("%q in %q: %v, want %s", c.cron, c.zone, err, c.want)
		}
	}
}
