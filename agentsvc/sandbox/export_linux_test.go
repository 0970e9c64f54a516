package sandbox

import "os"

// bubblewrapOpen is the sandbox of a host where only bubblewrap may make namespaces.
const bubblewrapOpen = "bubblewrap not enclosed"

// ForceBackend makes h use the sandbox of this name and reports whether it works on this machine.
func ForceBackend(h *Host, name string) bool {
	k := backend{name: name}
	switch name {
	case "bubblewrap", bubblewrapOpen:
		k = backend{name: name, fullIsolation: true, bwrap: FindProgram("bwrap"), namespaces: true, enclosed: name != bubblewrapOpen}
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

// ForceRoot makes h use the sandbox bwrap as if the server was root.
func ForceRoot(h *Host, bwrap string) {
	k := backend{name: "bubblewrap", fullIsolation: true, bwrap: bwrap}
	k.user, k.untrustedErr = h.findUntrustedUser(k)
	h.findBackend = func() backend { return k }
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

// WriteGroupLimits sets the limits of a program's control group in the files of a folder.
func WriteGroupLimits(folder string) error {
	return cgroupFactory{limits: groupLimits}.writeLimits(folder)
}
