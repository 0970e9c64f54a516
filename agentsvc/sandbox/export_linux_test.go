package sandbox

import "os"

// Force lets h use the sandbox of this name, and reports whether it works here.
func Force(h *Host, name string) bool {
	k := holder{name: name}
	switch name {
	case "bubblewrap":
		k = holder{name: name, whole: true, bwrap: Find("bwrap"), apart: true}
		if k.bwrap == "" {
			return false
		}
	case "landlock":
		k = holder{name: name, whole: true, apart: true}
	}
	if k.whole && os.Geteuid() == 0 {
		k.user, k.untrusted = h.dropTo(k)
	}
	h.find = func() holder { return k }
	return h.works(k, false)
}

// ForceGroups has h make control groups below parent with these limits.
func ForceGroups(h *Host, parent string, limits map[string]string) {
	k := h.find()
	k.groups = cgroups{parent: parent, limits: limits}
	h.find = func() holder { return k }
}

// OwnCgroup and PrepareCgroups are what a server does to find a place for groups.
var (
	OwnCgroup      = ownCgroup
	PrepareCgroups = func(own string, mayMove bool) bool { return prepareCgroups(own, mayMove).parent != "" }
)

// Totals are the limits of a group.
var Totals = totals
