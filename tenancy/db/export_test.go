package db

// Summarize is for the tests.
var Summarize = summarize
