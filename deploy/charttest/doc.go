// Package charttest has the tests of the chart and of the Compose files. They need Helm and Kubernetes' types, so that this
// is a module of its own: none of them is a dependency of Stoa.
package charttest
