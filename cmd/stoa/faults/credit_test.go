package faults_test

import (
	"context"
	"fmt"
	"net/http"
	"testing"
	"time"
)

// TestCreditCommit breaks the connection while the database commits a credit, so that Stoa cannot know whether it is granted. Whoever
// asks again under the same key, until it is answered, has granted it once; without a key, what was answered as granted is.
func TestCreditCommit(t *testing.T) {
	t.Parallel()
	c := up(t, setup{nodes: 1})
	n := c.nodes[0]
	c.sql(`CREATE FUNCTION held() RETURNS TRIGGER LANGUAGE plpgsql AS $$ BEGIN PERFORM pg_advisory_xact_lock_shared(7); RETURN NULL; END $$`)
	c.sql(`CREATE CONSTRAINT TRIGGER held AFTER INSERT ON credit DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION held()`)
	for i, x := range []struct {
		name   string
		header []string
	}{{"under a key", []string{"Idempotency-Key", "grant-1"}}, {"without a key", nil}} {
		free := c.hold("SELECT pg_advisory_xact_lock(7)")
		body := map[string]any{"amount": 1000 + i, "currency": "USD"}
		ask := func() (int, error) {
			ctx, cancel := context.WithTimeout(t.Context(), deadline)
			defer cancel()
			a, err := n.admin().do(ctx, http.MethodPost, "/admin/apps/acme/credits", body, x.header...)
			return a.status, err
		}
		first := make(chan string, 1)
		go func() {
			status, err := ask()
			first <- fmt.Sprint(status, err)
		}()
		c.within(10*time.Second, "the commit of the credit is under way", func() bool {
			return len(c.sql(`SELECT 1 FROM pg_locks WHERE NOT granted AND locktype = 'advisory'`)) > 0
		})
		n.pg.cut()
		free()
		say(t, "%s: the call whose commit broke off was answered %s", x.name, <-first)
		if x.header != nil {
			c.within(10*time.Second, "the credit is granted", func() bool {
				status, err := ask()
				return err == nil && status == http.StatusCreated
			})
		}
		count := c.sql("SELECT COUNT(*) FROM credit WHERE amount = $1", 1000+i)[0][0].(int64)
		posted := c.sql("SELECT COUNT(*) FROM ledger_entry WHERE kind = 'grant'")[0][0].(int64)
		if count != 1 || posted != int64(i+1) {
			t.Errorf("%s: %d credits were granted, %d are in the books", x.name, count, posted)
		}
	}
}
