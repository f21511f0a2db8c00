package cli

import (
	"slices"

	"github.com/spf13/pflag"

	"cachelab/app/modes"
)

// Flags returns the flags of the run commands, with the defaults of most.
func Flags() []*pflag.Flag {
	var all []*pflag.Flag
	flags := pflag.NewFlagSet("", pflag.ContinueOnError)
	newSettings(usual()).register(flags)
	flags.VisitAll(func(f *pflag.Flag) { all = append(all, f) })
	return all
}

// LiveFlags returns the flags that live has beside those of the run commands.
func LiveFlags() []*pflag.Flag {
	var own []*pflag.Flag
	flags := pflag.NewFlagSet("", pflag.ContinueOnError)
	newLiveSettings(modes.All()).register(flags)
	usual := Flags()
	flags.VisitAll(func(f *pflag.Flag) {
		if !slices.ContainsFunc(usual, func(u *pflag.Flag) bool { return u.Name == f.Name }) {
			own = append(own, f)
		}
	})
	return own
}

// UnknownVariables returns what is said of the variables.
func UnknownVariables(environ []string) []string {
	return unknownVariables(newRoot(Process{Modes: modes.All()}), environ)
}
