//! Accesses to shared memory. They take effect at issue; a wave must wait for them before a barrier that is to order them.

use crate::banks;
use crate::block::{Access, Block, Space};
use crate::machine::{Core, Fault};
use crate::wave::{LANES, Late, Registers, Wave};

impl Core {
    /// Loads words of shared memory, each at its offset from a lane's address, into consecutive registers.
    pub fn load_shared(
        &mut self,
        wave: &mut Wave,
        destination: usize,
        address: usize,
        offsets: &[usize],
    ) -> Result<(), Fault> {
        wave.check(Registers::Vector(address..address + 1))?;
        let registers = Registers::Vector(destination..destination + offsets.len());
        wave.check(registers.clone())?;
        self.count_clocks(wave, address, offsets, false);
        let mut words = Vec::new();
        for lane in wave.lanes() {
            // The address may be in one of the registers that the load overwrites.
            let base = wave.vectors[address][lane] as usize;
            for (word, offset) in offsets.iter().enumerate() {
                let at = base + offset;
                let shared = &self.block(wave)?.shared;
                let bytes = shared.get(at..at + 4).ok_or_else(|| outside(at))?;
                let value = u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
                wave.vectors[destination + word][lane] = value;
                words.push(at as u64);
            }
        }
        wave.mark(&registers, true);
        self.begin_shared(wave, registers, words, Access::Load)
    }

    /// Loads eight bytes from each lane's address, and transposes elements of 16 bits in groups of 16 lanes.
    pub fn load_transposed(
        &mut self,
        wave: &mut Wave,
        destination: usize,
        address: usize,
        offset: usize,
    ) -> Result<(), Fault> {
        if wave.lanes().count() != LANES {
            let what = "a load that transposes, while not all lanes are active";
            return Err(Fault::Memory(what.to_owned()));
        }
        let misaligned =
            |lane: &usize| !(wave.vectors[address][*lane] as usize + offset).is_multiple_of(8);
        if let Some(lane) = wave.lanes().find(misaligned) {
            let what = format!("a load that transposes, not at a multiple of 8 in lane {lane}");
            return Err(Fault::Memory(what));
        }
        self.load_shared(wave, destination, address, &[offset, offset + 4])?;
        let registers = &mut wave.vectors[destination..destination + 2];
        let given = [registers[0], registers[1]];
        for (word, register) in registers.iter_mut().enumerate() {
            *register = transposed(&given, word);
        }
        Ok(())
    }

    /// Gives each lane the word of the lane that its address names; inactive lanes have zero.
    pub fn permute(
        &mut self,
        wave: &mut Wave,
        destination: usize,
        address: usize,
        source: usize,
    ) -> Result<(), Fault> {
        for register in [address, source, destination] {
            wave.check(Registers::Vector(register..register + 1))?;
        }
        let mut words = [0; LANES];
        for lane in wave.lanes() {
            words[lane] = wave.vectors[source][lane];
        }
        let places = wave.vectors[address];
        for lane in wave.lanes() {
            wave.vectors[destination][lane] = words[places[lane] as usize / 4 % LANES];
        }
        let registers = Registers::Vector(destination..destination + 1);
        wave.mark(&registers, true);
        self.begin_shared(wave, registers, Vec::new(), Access::Load)
    }

    /// Stores registers to shared memory, each at its offset from a lane's address.
    pub fn store_shared(
        &mut self,
        wave: &mut Wave,
        address: usize,
        sources: &[(usize, usize)],
    ) -> Result<(), Fault> {
        wave.check(Registers::Vector(address..address + 1))?;
        let offsets: Vec<usize> = sources.iter().map(|&(_, offset)| offset).collect();
        self.count_clocks(wave, address, &offsets, true);
        let mut words = Vec::new();
        for &(source, offset) in sources {
            wave.check(Registers::Vector(source..source + 1))?;
            for lane in wave.lanes() {
                let at = wave.vectors[address][lane] as usize + offset;
                let value = wave.vectors[source][lane].to_le_bytes();
                let shared = &mut self.block(wave)?.shared;
                shared
                    .get_mut(at..at + 4)
                    .ok_or_else(|| outside(at))?
                    .copy_from_slice(&value);
                words.push(at as u64);
            }
        }
        self.begin_shared(wave, Registers::Vector(0..0), words, Access::Store)
    }

    /// Stores a half of a register to shared memory, at an offset from a lane's address. Races are looked for in whole words.
    pub fn store_shared_half(
        &mut self,
        wave: &mut Wave,
        address: usize,
        (source, high): (usize, bool),
        offset: usize,
    ) -> Result<(), Fault> {
        for register in [address, source] {
            wave.check(Registers::Vector(register..register + 1))?;
        }
        self.count_clocks(wave, address, &[offset], true);
        let mut words = Vec::new();
        for lane in wave.lanes() {
            let at = wave.vectors[address][lane] as usize + offset;
            let value = wave.vectors[source][lane] >> if high { 16 } else { 0 };
            let shared = &mut self.block(wave)?.shared;
            shared
                .get_mut(at..at + 2)
                .ok_or_else(|| outside(at))?
                .copy_from_slice(&(value as u16).to_le_bytes());
            words.push(at as u64 & !3);
        }
        self.begin_shared(wave, Registers::Vector(0..0), words, Access::Store)
    }

    fn begin_shared(
        &mut self,
        wave: &mut Wave,
        registers: Registers,
        words: Vec<u64>,
        kind: Access,
    ) -> Result<(), Fault> {
        let late = Late {
            registers,
            words,
            kind,
        };
        self.end_shared(wave, &late)?;
        wave.scalar_pending.push_back(late);
        Ok(())
    }

    /// Records an access to shared memory, where it is issued and where it has been waited for.
    pub fn end_shared(&mut self, wave: &Wave, late: &Late) -> Result<(), Fault> {
        for &at in &late.words {
            self.access(wave, Space::Shared, (at, 4), late.kind)?;
        }
        Ok(())
    }

    /// Records an access of a wave, and fails if it races with another wave's.
    pub fn access(
        &mut self,
        wave: &Wave,
        space: Space,
        (at, bytes): (u64, usize),
        kind: Access,
    ) -> Result<(), Fault> {
        let block = self.block(wave)?;
        let found = block.access(wave.number, (space, at, bytes), kind);
        found.map_err(|what| {
            let place = match space {
                Space::Shared => format!("byte {at} of shared memory"),
                Space::Global => self.memory.describe(at),
            };
            Fault::Memory(format!("{place}: {what}"))
        })
    }

    pub fn block(&mut self, wave: &Wave) -> Result<&mut Block, Fault> {
        self.blocks
            .get_mut(&(wave.rank, wave.block))
            .ok_or_else(|| Fault::Memory("the wave has no block".to_owned()))
    }

    /// Counts the clocks of the instruction that a wave executes. Of two accesses in one instruction, each is counted.
    fn count_clocks(&mut self, wave: &Wave, address: usize, offsets: &[usize], stores: bool) {
        let instruction = &wave.program.instructions[wave.next - 1];
        let name = instruction.text.split(' ').next().unwrap_or_default();
        let halves = if name.contains("2_b") { 2 } else { 1 };
        let words = (offsets.len() / halves).max(1);
        let (mut most, mut least) = (0, 0);
        for part in offsets.chunks(words) {
            let lanes = wave.lanes().map(|lane| {
                let base = wave.vectors[address][lane] as usize;
                (lane, base + part[0])
            });
            let lanes: Vec<(usize, usize)> = lanes.collect();
            let (clocks, free) = banks::clocks(wave.program.target, stores, words, &lanes);
            most += clocks;
            least += free;
        }
        let place = (wave.program.name.clone(), instruction.offset);
        let clocks = banks::Clocks {
            executions: 1,
            most,
            least,
        };
        banks::add(&mut self.shared_accesses, [(place, clocks)].into());
    }
}

/// Returns a word of what each lane gets of the two words that each has loaded.
fn transposed(given: &[[u32; LANES]; 2], word: usize) -> [u32; LANES] {
    std::array::from_fn(|lane| {
        let (group, column) = (lane / 16 * 16, lane % 16);
        let element = |line: usize| {
            let words = given[column % 4 / 2][group + 4 * line + column / 4];
            words >> (16 * (column % 2)) & 0xffff
        };
        element(2 * word + 1) << 16 | element(2 * word)
    })
}

pub fn outside(at: usize) -> Fault {
    Fault::Memory(format!("shared memory has no byte {at}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_load_that_transposes_gives_a_lane_a_column_of_four_lines_of_its_group() {
        // An element is named by its group, line and column.
        let name =
            |group: usize, line: usize, column: usize| (group << 8 | line << 4 | column) as u32;
        let given: [[u32; LANES]; 2] = std::array::from_fn(|word| {
            std::array::from_fn(|lane| {
                let (line, column) = (lane % 16 / 4, lane % 4 * 4 + 2 * word);
                name(lane / 16, line, column + 1) << 16 | name(lane / 16, line, column)
            })
        });
        for word in 0..2 {
            for (lane, got) in transposed(&given, word).into_iter().enumerate() {
                let of_line = |line| name(lane / 16, line, lane % 16);
                assert_eq!(
                    got,
                    of_line(2 * word + 1) << 16 | of_line(2 * word),
                    "{lane}"
                );
            }
        }
    }
}
