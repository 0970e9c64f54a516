package faults_test

import (
	"context"
	"fmt"
	"net/http"
	"testing"
)

// TestCreditCommit breaks the connection while the database commits a credit, so that Stoa cannot know whether it was
// granted. A client that repeats the request with the same key until it is answered has granted it once; without a
// key, what was answered as granted is granted.
func TestCreditCommit(t *testing.T) {
	t.Parallel()
	c := startCluster(t, clusterOptions{nodes: 1})
	n := c.nodes[0]
	c.querySQL(`CREATE FUNCTION held() RETURNS TRIGGER LANGUAGE plpgsql AS $$ BEGIN PERFORM pg_advisory_xact_lock_shared(7); RETURN NULL; END $$`)
	c.querySQL(`CREATE CONSTRAINT TRIGGER held AFTER INSERT ON credit DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION held()`)
	for i, x := range []struct {
		name   string
		header []string
	}{{"under a key", []string{"Idempotency-Key", "grant-1"}}, {"without a key", nil}} {
		free := c.acquireLock("SELECT pg_advisory_xact_lock(7)")
		body := map[string]any{"amount": 1000 + i, "currency": "USD"}
		request := func() (int, error) {
			ctx, cancel := context.WithTimeout(t.Context(), requestDeadline)
			defer cancel()
			a, err := n.adminClient().doRequest(ctx, http.MethodPost, "/admin/apps/acme/credits", body, x.header...)
			return a.status, err
		}
		first := make(chan string, 1)
		go func() {
			status, err := request()
			first <- fmt.Sprint(status, err)
		}()
		c.waitForLockWaiter()
		n.postgresProxy.cutConnections()
		free()
		reportf(t, "%s: the call whose commit broke off was answered %s", x.name, <-first)
		if x.header != nil {
			c.waitWithin(setupTimeout, "the credit is granted", func() bool {
				status, err := request()
				return err == nil && status == http.StatusCreated
			})
		}
		count := c.querySQL("SELECT COUNT(*) FROM credit WHERE amount = $1", 1000+i)[0][0].(int64)
		posted := c.querySQL("SELECT COUNT(*) FROM ledger_entry WHERE kind = 'grant'")[0][0].(int64)
		if count != 1 || posted != int64(i+1) {
			t.Errorf("%s: %d credits were granted, %d are in the books", x.name, count, posted)
		}
	}
}
