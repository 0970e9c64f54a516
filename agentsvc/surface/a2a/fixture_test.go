package a2a_test

import (
	"testing"
	"time"

	"go.uber.org/goleak"

	"stoa/agentsvc/surface"
	"stoa/agentsvc/surface/a2a"
	"stoa/agentsvc/surface/surfacetest"
	"stoa/authz"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// newFixture serves [surfacetest.Script] as the default app and as the apps acme and globex.
func newFixture(t *testing.T) *surfacetest.Fixture {
	t.Helper()
	return newFixtureWith(t, surfacetest.Script)
}

// newFixtureWith is newFixture with another default app.
func newFixtureWith(t *testing.T, own string) *surfacetest.Fixture {
	t.Helper()
	return surfacetest.NewScripted(t, surfacetest.Options{Default: own, Surface: surface.Options{Timeouts: surface.Timeouts{KeepAlive: time.Minute}}}, newRoutes)
}

var eveSpec = authz.TokenSpec{Subject: "eve"}

func newRoutes(*surfacetest.Fixture) []surface.Route { return a2a.Routes(a2a.Options{}) }

func mintToken(t *testing.T, h *surfacetest.Fixture, app, sub string) string {
	t.Helper()
	return h.MintToken(t, app, authz.TokenSpec{Subject: sub, Roles: []string{"caller", "approver"}, Scope: "agents:read agents:call tasks:approve"})
}
