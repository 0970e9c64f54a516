package sandbox

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
	h.find = func() holder { return k }
	return h.works(k)
}
