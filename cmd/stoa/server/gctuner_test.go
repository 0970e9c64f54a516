package server

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"

	"stoa/tenancy"
)

// TestLargeConfigsTakeTurns: of large configurations one is read at a time, also to build an app; a small one waits for none.
func TestLargeConfigsTakeTurns(t *testing.T) {
	t.Parallel()
	var b strings.Builder
	for i := range 3_000 {
		fmt.Fprintf(&b, "unknown%d: {a: b, c: d}\n", i)
	}
	large := []byte(b.String())
	half := large[:len(large)/4]
	for name, read := range map[string]func(*configMemory){
		"one":          func(m *configMemory) { m.beginReading(large)() },
		"two together": func(m *configMemory) { m.beginReading(half, half, half, half)() },
		"an app is built": func(m *configMemory) {
			s := &tenancy.Snapshot{App: tenancy.App{ID: "acme"}, Config: large}
			if _, err := new(DefaultApp).parseConfig(s, m); err == nil || !strings.Contains(err.Error(), "not a known key") {
				t.Errorf("the configuration is read with %v", err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				m := newConfigMemory(&gcTuner{defaultPercent: -1})
				end := m.beginReading(large)
				done := make(chan struct{})
				go func() {
					defer close(done)
					read(m)
				}()
				m.beginReading([]byte("agents: {}"))()
				m.beginReading(half)()
				synctest.Wait()
				select {
				case <-done:
					t.Error("it does not wait for the large configuration before it")
				default:
				}
				end()
				<-done
				if left := m.tuner.largeBytes.Load(); left != 0 {
					t.Errorf("%d bytes count as in use", left)
				}
			})
		})
	}
}
