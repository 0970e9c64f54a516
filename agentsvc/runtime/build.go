package runtime

import (
	"errors"
	"log/slog"

	"stoa/agentsvc"
	"stoa/agentsvc/capacity"
	"stoa/agentsvc/config"
	"stoa/agentsvc/egress"
	"stoa/agentsvc/sandbox"
	"stoa/agentsvc/vectorstore"
	"stoa/tenancy/grant"
)

// build is what the parts of one call of [Build] share: the configuration, whose it is, and what was found wrong so far.
// It is used by one goroutine.
type build struct {
	cfg    *config.Config
	tenant Tenant
	log    *slog.Logger
	// closers become those of the Runtime.
	closers []func() error
	problemList
}

// appID returns the app whose share of the processors computations use, see package processor.
func (b *build) appID() string { return string(b.tenant.ID) }

// hostAccess is what the app may reach of the network and of this host.
type hostAccess struct {
	*build
	egressClient *egress.Client
	folderGuard  *grant.Guard
	// sandbox is nil if no program of this host may run.
	sandbox *sandbox.Host
	// vectorStores are those that newVectorStore has built, by their name and the beginning of their collections' names.
	vectorStores map[[2]string]vectorstore.Store
	// answerMemory and vectorMemory are those of [RunLimits].
	answerMemory, vectorMemory *capacity.Pool
}

// newHostAccess returns what the app may reach by its grants.
func newHostAccess(b *build, h Host, l RunLimits) *hostAccess {
	a := &hostAccess{b, h.PublicEgress, h.FolderGuard, h.Sandbox, map[[2]string]vectorstore.Store{}, l.Memory, l.VectorMemory}
	if b.tenant.PrivateNetwork {
		a.egressClient = h.PrivateEgress
	}
	return a
}

// newAnswerMemory returns a reservation that what reads answers of other servers for the app makes parts of.
func (a *hostAccess) newAnswerMemory() *capacity.MemoryReservation {
	return a.answerMemory.NewReservation(a.tenant.ID, 1)
}

// newVectorMemory returns a reservation for vectors of the app.
func (a *hostAccess) newVectorMemory() *capacity.MemoryReservation {
	return a.vectorMemory.NewReservation(a.tenant.ID, 1)
}

// resolvePath resolves a path of the configuration within the folders that the app was granted for power. For the
// operator's own app the path is used as it is, with an empty Root. A problem is an error with [agentsvc.CodeInvalid]
// of field.
func (a *hostAccess) resolvePath(field, power, path string) (grant.RootedPath, error) {
	if a.tenant.DefaultApp {
		return grant.RootedPath{Path: path}, nil
	}
	p, err := a.folderGuard.ResolvePath(a.tenant.Grants.Roots(power), path)
	if err != nil {
		return p, agentsvc.NewInvalidError(field, "%v", err)
	}
	return p, nil
}

// checkSandbox returns an error if programs of this host may not run. The operator's own may run with whatever sandbox
// the host has, a tenant's only in one that isolates completely.
func (a *hostAccess) checkSandbox() error {
	if a.sandbox == nil {
		return errNoSandbox
	}
	if a.tenant.DefaultApp {
		return nil
	}
	return a.sandbox.CheckUntrusted()
}

var errNoSandbox = errors.New("programs run only in a sandbox, and this host has none")
