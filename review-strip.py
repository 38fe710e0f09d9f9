import re,subprocess,sys
C=open('COMMIT').read().strip()
def show(p): return subprocess.check_output(['git','-C','/work/wt-shared2','show',f'{C}:{p}'],text=True)
def clean(s):
    s=s.split('#[cfg(test)]\nmod tests')[0]
    s=re.sub(r'#\[error\((?:.|\n)*?\)\]\n','',s)
    s=s.replace(', thiserror::Error','').replace(', Serialize','').replace(', Deserialize','').replace(', JsonSchema','')
    s=re.sub(r'use (serde|schemars)[^;]*;\n','',s)
    s=s.replace('use tokio::time::Instant;','use std::time::Instant;')
    s=re.sub(r'^//!.*\n','',s,flags=re.M)
    return s
m='#![allow(dead_code,unused_imports)]\n'
m+='''pub mod wall_clock { use std::time::Duration;
#[derive(Clone,Copy,Debug,PartialEq,Eq,PartialOrd,Ord)] pub struct Moment(pub u64);
impl Moment { pub fn age(self, now: Self)->Duration{Duration::from_secs(now.0.saturating_sub(self.0))} pub fn plus(self,d:Duration)->Self{Moment(self.0+d.as_secs())} }
#[derive(Clone,Copy)] pub struct Clock; impl Clock{pub fn now(self)->Moment{Moment(0)}} }
pub mod model { pub mod settings { pub mod limits { pub const BUDGET_PERIOD: std::time::Duration=std::time::Duration::from_secs(3600);}
 pub mod shared { use crate::model::share::Share; #[derive(Clone,Debug,PartialEq,Eq)] pub struct KeeperSettings{pub jobs:usize,pub bytes_per_hour:u64,pub lease:std::time::Duration,pub members:std::collections::BTreeMap<String,Share>}
 impl KeeperSettings{pub fn total(&self)->Share{Share{jobs:self.jobs,bytes_per_hour:self.bytes_per_hour}}} } }
 pub mod share {'''+clean(show('src/model/share.rs'))+'}}\n'
root=clean(show('src/shared_limits.rs')).replace('mod allowance;','').replace('mod fair;','').replace('pub(crate) mod keeper;','').replace('mod member;','')
m+='pub mod shared_limits {'+root
for f in ('allowance','fair','keeper','member'):
    m+=f'pub(crate) mod {f} {{'+clean(show(f'src/shared_limits/{f}.rs')).replace('use wall_clock','use crate::wall_clock')+'}\n'
m+='}\n'
m+=open('cases.rs').read()
open('main.rs','w').write(m)
