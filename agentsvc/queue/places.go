package queue

import (
	"maps"

	"stoa/tenancy/db"
)

// places counts the runs of one kind that are at work in this process, by app. [Pool.mu] guards it.
type places struct {
	size  int
	taken int
	apps  map[db.ID]int
	may   shareRule
}

// shareRule reports whether an app that has some of the places may take one of those that are free.
type shareRule func(has, free int) bool

func newPlaces(size int, may shareRule) *places {
	return &places{size: size, apps: map[db.ID]int{}, may: may}
}

// asManyAsFree lets an app have at most as many places as it leaves free: alone it gets half of them, and N apps that take all
// they may leave a part of 1/(N+1). So an app that has none finds a place, however many others take theirs. It is the rule
// of shared buffers in switches (Choudhury and Hahne, Dynamic Queue Length Thresholds, 1998).
func asManyAsFree(has, free int) bool { return has < free }

// upTo lets an app have n places.
func upTo(n int) shareRule { return func(has, free int) bool { return has < n && free > 0 } }

// allButLast keeps the last free place for an app that has none.
func allButLast(has, free int) bool { return free > 1 || free == 1 && has == 0 }

func (p *places) free() int { return p.size - p.taken }

// hasRoom reports whether the app may take a place.
func (p *places) hasRoom(app db.ID) bool { return p.may(p.apps[app], p.free()) }

// take takes a place for the app, if it may have one.
func (p *places) take(app db.ID) bool {
	if !p.hasRoom(app) {
		return false
	}
	p.add(app)
	return true
}

// add takes a place for the app that it may have, as was seen before.
func (p *places) add(app db.ID) {
	p.taken++
	p.apps[app]++
}

func (p *places) leave(app db.ID) {
	p.taken--
	if p.apps[app]--; p.apps[app] == 0 {
		delete(p.apps, app)
	}
}

// byApp returns how many places each app has.
func (p *places) byApp() map[db.ID]int { return maps.Clone(p.apps) }
