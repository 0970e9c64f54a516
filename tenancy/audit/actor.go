package audit

import "stoa/agentsvc"

// Actor is who did something, and from where.
type Actor struct {
	// Name is the operator's name, the subject of a user, or that of [System].
	Name string
	// Issuer is the issuer that authenticated a user; "" for the platform's operator and the platform itself.
	Issuer string
	Origin
}

// Origin is the source of a request; the zero value is that of background work.
type Origin struct {
	// Client is the address of the client, without a port.
	Client string
	// Request is the request's id, which also appears in the log.
	Request string
}

// System is the actor of entries about what the platform does by itself.
var System = Actor{Name: "stoa"}

// NewUserActor returns a user of an app as the actor of a request from origin.
func NewUserActor(user agentsvc.Owner, origin Origin) Actor {
	return Actor{Name: user.Subject, Issuer: user.Issuer, Origin: origin}
}
