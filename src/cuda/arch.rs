//! The kernel families and which GPU runs which.

use super::images::{IMAGES, Image};

/// A family of kernels, named after the GPU generation that it was written for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Arch {
    /// Turing: m16n8k8 matrix instructions, loads staged through registers.
    Sm75,
    /// Ampere: cp.async pipelines, m16n8k16. Also whatever is newer and has no family of its own.
    Sm80,
    /// Hopper: TMA and wgmma, on compute capability 9.0 only.
    Sm90a,
}

impl Arch {
    /// All of them, oldest first.
    pub const ALL: [Self; 3] = [Self::Sm75, Self::Sm80, Self::Sm90a];

    /// The suffix of its files and its name in `SOLVE_ARCH`.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Sm75 => "sm75",
            Self::Sm80 => "sm80",
            Self::Sm90a => "sm90a",
        }
    }

    /// The architecture of this name.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|arch| arch.name() == name)
    }

    /// The compute capability that its cubins are for.
    #[must_use]
    pub fn capability(self) -> (u32, u32) {
        match self {
            Self::Sm75 => (7, 5),
            Self::Sm80 => (8, 0),
            Self::Sm90a => (9, 0),
        }
    }

    /// Those that this build has, oldest first.
    pub fn built_in() -> impl Iterator<Item = Self> {
        Self::ALL.into_iter().filter(|&arch| IMAGES.iter().any(|image| image.arch == arch))
    }

    /// Whether a GPU of this capability can run the family, as a cubin or by translating PTX.
    #[must_use]
    pub fn runs_on(self, capability: (u32, u32)) -> bool {
        // Hopper's instructions exist on 9.0 alone.
        let translates = self != Self::Sm90a;
        Self::built_in().any(|arch| arch == self)
            && (capability == self.capability() || translates && capability > self.capability())
    }

    /// Multiprocessors that its kernels need, as blocks wait for each other: of Hopper's attention projection the eight of a row, of the others' exact
    /// block any two. A process under MPS may have fewer.
    #[must_use]
    pub fn fewest_sms(self) -> usize {
        if self == Self::Sm90a { 8 } else { 2 }
    }

    /// The best family for so many multiprocessors of this capability.
    #[must_use]
    pub fn best_for(capability: (u32, u32), sms: usize) -> Option<Self> {
        Self::ALL.into_iter().rev().find(|arch| arch.runs_on(capability) && sms >= arch.fewest_sms())
    }

    /// The compiled files to load on a GPU of this capability: cubins where they fit, else PTX.
    pub fn images(self, capability: (u32, u32)) -> impl Iterator<Item = &'static Image> {
        let own = self.capability();
        let fits = capability.0 == own.0 && capability.1 >= own.1;
        IMAGES.iter().filter(move |image| image.arch == self && image.ptx != fits)
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    #[test]
    fn few_multiprocessors_are_not_hoppers() {
        if Arch::built_in().count() < Arch::ALL.len() {
            let _ = writeln!(std::io::stderr(), "\nskipped: this build leaves architectures out");
            return;
        }
        let best = |sms| Arch::best_for((9, 0), sms);
        assert_eq!(
            [132, 8, 7, 2, 1].map(best),
            [Some(Arch::Sm90a), Some(Arch::Sm90a), Some(Arch::Sm80), Some(Arch::Sm80), None]
        );
    }
}
