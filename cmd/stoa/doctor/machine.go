package doctor

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"stoa/agentsvc/egress"
	"stoa/agentsvc/sandbox"
)

// checkSandbox runs an empty program in the sandbox of apps' programs and of the readers of documents.
func (i *inspector) checkSandbox(context.Context) []Check {
	const name = "sandbox"
	s := i.Settings.Sandbox
	host := sandbox.NewHost(i.helper, sandbox.Options{User: s.User, ProgramFolders: s.Programs})
	backend, full := host.DescribeIsolation()
	err := host.CheckUntrusted()
	switch {
	case !full:
		return []Check{warn(name, fmt.Sprintf("programs of apps are refused: %q cannot confine them", backend), "install bubblewrap, or permit namespaces to this process (docs/operations/install.md); without programs and documents of apps nothing is missing")}
	case err != nil:
		return []Check{warn(name, "programs of apps are refused: "+err.Error(), "run the server as an ordinary user")}
	}
	return []Check{pass(name, "programs of apps run in %s", backend)}
}

// metadataAddresses are addresses of the services at which clouds give credentials to their machines.
var metadataAddresses = []string{"169.254.169.254:80", "[fd00:ec2::254]:80", "168.63.129.16:80", "100.100.100.200:80"}

// checkEgress lets the clients that agents use connect to metadata services, and the one without the grant private_network
// to this machine. The guard refuses an address before anything is sent.
func (i *inspector) checkEgress(ctx context.Context) []Check {
	const name = "egress"
	probes := []struct {
		client    *egress.Client
		addresses []string
	}{{i.public, append([]string{"127.0.0.1:80"}, metadataAddresses...)}, {i.private, metadataAddresses}}
	refused := 0
	for _, probe := range probes {
		for _, address := range probe.addresses {
			conn, err := probe.client.DialContext(ctx, "tcp", address)
			if conn != nil {
				_ = conn.Close()
			}
			var notAllowed *egress.NotAllowedError
			if !errors.As(err, &notAllowed) {
				return []Check{fail(name, "the guard of outgoing connections does not refuse "+address, "do not serve apps of others with this binary: it is not built as released")}
			}
			refused++
		}
	}
	return []Check{pass(name, "agents cannot reach metadata services (%d addresses refused)", refused)}
}

// Bounds of free space. A database below 1 MiB refuses to write; the alert StoaDiskLow has the same larger bound.
const (
	minFreeBytes = 100 << 20
	lowFreeBytes = 2 << 30
)

// checkDisk reports the free space of the folders that this process writes to.
func (i *inspector) checkDisk(context.Context) []Check {
	const name = "disk"
	var checks []Check
	var seen []string
	for _, folder := range i.listFolders() {
		if folder.path, _ = filepath.Abs(folder.path); slices.Contains(seen, folder.path) {
			continue
		}
		seen = append(seen, folder.path)
		checks = append(checks, checkFolder(folder.path, folder.use))
	}
	if len(checks) == 0 {
		return []Check{skip(name, "this process stores nothing on its disk")}
	}
	// One check, with the worst folder first.
	rank := []Status{Failure, Warning, OK}
	slices.SortStableFunc(checks, func(a, b Check) int { return cmp.Compare(slices.Index(rank, a.Status), slices.Index(rank, b.Status)) })
	all := checks[0]
	all.Name = name
	for _, c := range checks[1:] {
		all.Detail += "; " + c.Detail
	}
	return []Check{all}
}

// dataFolder is a folder that this process writes to.
type dataFolder struct{ path, use string }

// listFolders returns the folders that the settings and the operator's file name.
func (o Options) listFolders() (folders []dataFolder) {
	if path, isFile := strings.CutPrefix(o.Settings.Database.URL, "sqlite://"); isFile && path != ":memory:" {
		folders = append(folders, dataFolder{filepath.Dir(path), "database"})
	}
	if targets, err := o.Settings.ListExportTargets(); err == nil {
		for _, t := range targets {
			if t.Folder != "" {
				folders = append(folders, dataFolder{t.Folder, "export of usage"})
			}
		}
	}
	if file := o.Settings.Log.File; file != "" {
		folders = append(folders, dataFolder{filepath.Dir(file), "log"})
	}
	if o.Config == nil {
		return folders
	}
	for store, v := range o.Config.VectorStores {
		if v != nil && v.PersistPath != "" {
			folders = append(folders, dataFolder{filepath.Dir(v.PersistPath), "vector store " + store})
		}
	}
	return folders
}

// checkFolder reports whether a folder can be written and has free space.
func checkFolder(path, use string) Check {
	where := fmt.Sprintf("%s (%s)", path, use)
	var s unix.Statfs_t
	if err := unix.Statfs(path, &s); err != nil {
		return fail("", where+" cannot be read: "+err.Error(), "create the folder for the user of the server")
	}
	if err := unix.Access(path, unix.W_OK); err != nil {
		return fail("", where+" cannot be written by this user", "run this as the user of the server; if it is, give the folder to it")
	}
	return rateSpace(int64(s.Bavail)*int64(s.Bsize), where) //nolint:unconvert // other types on other systems
}

// rateSpace reports whether the free bytes of a folder suffice.
func rateSpace(free int64, where string) Check {
	detail := fmt.Sprintf("%s free at %s", formatBytes(free), where)
	switch {
	case free < minFreeBytes:
		return fail("", detail, "enlarge the disk now: a full one refuses every call that writes")
	case free < lowFreeBytes:
		return warn("", detail, "enlarge the disk, or bound what apps store (--app-stored-bytes)")
	}
	return pass("", "%s", detail)
}

// formatBytes returns a size in MiB or GiB.
func formatBytes(n int64) string {
	if n < 1<<30 {
		return fmt.Sprintf("%d MiB", n>>20)
	}
	return fmt.Sprintf("%.1f GiB", float64(n)/(1<<30))
}

// checkNames reports whether the names of the configured hosts resolve.
func (i *inspector) checkNames(ctx context.Context) []Check {
	const name = "dns"
	hosts := i.listHosts()
	if len(hosts) == 0 {
		return []Check{skip(name, "no host is configured by its name")}
	}
	var missing []string
	for _, h := range hosts {
		if err := i.resolve(ctx, h.name); err != nil {
			reason := "is not answered"
			var unknown *net.DNSError
			if errors.As(err, &unknown) && unknown.IsNotFound {
				reason = "does not exist"
			}
			missing = append(missing, fmt.Sprintf("%s (%s) %s", h.name, h.use, reason))
		}
	}
	if len(missing) > 0 {
		return []Check{fail(name, strings.Join(missing, "; "), "correct the name, or the resolver of this machine (/etc/resolv.conf)")}
	}
	return []Check{pass(name, "every configured name resolves (%d)", len(hosts))}
}
