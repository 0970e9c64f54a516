package app

import (
	"stoa/agentsvc/notify"
)

// Notify is what a process that has addresses outside told of tasks wants to know.
type Notify struct {
	Push  bool                      // callers may have addresses of theirs told
	Made  func()                    // called when somebody is about to be told of another task
	Tried func(app, outcome string) // told of each attempt; may be nil
}

// Telling is how addresses outside are told.
type Telling struct {
	Secret []byte // signs what they are told; nil = nothing does
	Inside bool   // those that the app's callers choose may be private ones
}

// Desk sends what addresses outside are told of the app's tasks; nil where none are.
func (a *App) Desk() *notify.Desk { return a.desk }

// Pushes reports whether callers may have addresses of theirs told.
func (a *App) Pushes() bool { return a.pushes }

// desk makes it.
func (b *builder) desk(h House) *notify.Desk {
	if h.Notify == nil || h.Keys == nil {
		return nil
	}
	o := notify.Options{
		Callers: h.reach(b.tenant.Telling.Inside), Own: h.reach(b.tenant.Inside), Secret: b.tenant.Telling.Secret, Made: h.Notify.Made,
	}
	if tried, app := h.Notify.Tried, b.tenant.Name; tried != nil {
		o.Tried = func(outcome string) { tried(app, outcome) }
	}
	return notify.NewDesk(b.tenant.ID, h.Keys, o)
}

// reach is how far what is sent goes, private networks included or not.
func (h House) reach(inside bool) notify.Reach {
	if inside {
		return notify.Reach{Client: h.Inside, Inside: true}
	}
	return notify.Reach{Client: h.Outside}
}
