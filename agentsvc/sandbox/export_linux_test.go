package sandbox

import "os"

// ForceBackend makes h use the sandbox of this name and reports whether it works on this machine.
func ForceBackend(h *Host, name string) bool {
	k := backend{name: name}
	switch name {
	case "bubblewrap":
		k = backend{name: name, fullIsolation: true, bwrap: FindProgram("bwrap"), namespaces: true}
		if k.bwrap == "" {
			return false
		}
	case "landlock":
		k = backend{name: name, fullIsolation: true, namespaces: true}
	}
	if k.fullIsolation && os.Geteuid() == 0 {
		k.user, k.untrustedErr = h.findUntrustedUser(k)
	}
	h.findBackend = func() backend { return k }
	return h.canRun(k, false)
}

// ForceGroups makes h create control groups below parent with these limits.
func ForceGroups(h *Host, parent string, limits map[string]string) {
	k := h.findBackend()
	k.cgroups = cgroupFactory{parent: parent, limits: limits}
	h.findBackend = func() backend { return k }
}

// CurrentCgroup and PrepareCgroups export the detection of control groups.
var (
	CurrentCgroup  = currentCgroup
	PrepareCgroups = func(base string, mayMove bool) bool { return prepareCgroups(base, mayMove).parent != "" }
)

// GroupLimits are the limits of a program's control group.
var GroupLimits = groupLimits
