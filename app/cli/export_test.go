package cli

import (
	"github.com/spf13/pflag"

	"cachelab/app/modes"
)

// FlagsOf returns the flags of a command, those of a run by any mode's name.
func FlagsOf(name string) (all []*pflag.Flag) {
	command, _, err := newRoot(Process{Modes: modes.All()}).Find([]string{name})
	if err != nil {
		panic(err)
	}
	command.Flags().VisitAll(func(f *pflag.Flag) { all = append(all, f) })
	return all
}

// UnknownVariables returns what is said of the variables.
func UnknownVariables(environ []string) []string {
	return unknownVariables(newRoot(Process{Modes: modes.All()}), environ)
}
