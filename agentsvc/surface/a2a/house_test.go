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

// newHouse is a house with [surfacetest.Script] as the default app, and as the apps acme and globex.
func newHouse(t *testing.T) *surfacetest.House {
	t.Helper()
	return houseOf(t, surfacetest.Script)
}

// houseOf is newHouse with another default app.
func houseOf(t *testing.T, own string) *surfacetest.House {
	t.Helper()
	return surfacetest.Scripted(t, surfacetest.Options{Default: own, Surface: surface.Options{KeepAlive: time.Minute}}, routes)
}

var callerEve = authz.TokenSpec{Subject: "eve"}

func routes(*surfacetest.House) []surface.Route { return a2a.Routes(a2a.Options{}) }

func tokenOf(t *testing.T, h *surfacetest.House, app, sub string) string {
	t.Helper()
	return h.Token(t, app, authz.TokenSpec{Subject: sub, Roles: []string{"caller", "approver"}, Scope: "agents:read agents:call tasks:approve"})
}
